// chromium.js -- a page in headless Chromium, by the DevTools protocol over a pipe.
//
//     const browser = await open_browser();
//     const page = await browser.page('file:///...', { width: 1280, height: 900, dark: false });
//     await page.until('document.title');
//     await page.evaluate('1 + 1');    await page.click('#read');    await page.press('ArrowLeft');    await page.shot('a.png');
//     browser.close();
'use strict';
const { spawn } = require('child_process');
const fs = require('fs'), os = require('os'), path = require('path');

const sleep = ms => new Promise(done => setTimeout(done, ms));

async function open_browser() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'dpx-page-'));
    const child = spawn('chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
        '--no-first-run', '--disable-extensions',
        '--hide-scrollbars', '--user-data-dir=' + folder, 'about:blank'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    const waiting = new Map(), listeners = [];
    let next = 1, rest = '';
    child.stdio[4].on('data', data => {
        const parts = (rest + data).split('\0');
        rest = parts.pop();
        for (const part of parts) {
            const m = JSON.parse(part), w = waiting.get(m.id);
            if (w) {
                waiting.delete(m.id);
                m.error ? w.failed(new Error(m.error.message)) : w.done(m.result);
            } else
                listeners.forEach(l => l(m));
        }
    });
    const send = (method, params = {}, sessionId) => new Promise((done, failed) => {
        waiting.set(next, { done, failed });
        child.stdio[3].write(JSON.stringify({ id: next++, method, params, sessionId }) + '\0');
    });
    return {
        close() {
            child.on('exit', () => {        // its own children may write there a little longer
                try {
                    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
                } catch (error) {
                    if (error.code !== 'ENOTEMPTY')
                        throw error;
                }
            });
            child.kill();
        },
        async page(url, { width = 1280, height = 900, dark = false } = {}) {
            const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
            const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
            const page = new Page((m, p) => send(m, p, sessionId));
            listeners.push(m => m.sessionId === sessionId && page.heard(m));
            for (const domain of ['Page', 'Runtime', 'Network', 'Log'])
                await page.send(domain + '.enable');
            await page.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
            await page.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme',
                value: dark ? 'dark' : 'light' }] });
            await page.send('Page.navigate', { url });
            return page;
        },
    };
}

class Page {
    constructor(send) {
        this.send = send;
        this.errors = [];       // of scripts
        this.requests = [];     // that leave the page
    }
    heard(m) {
        if (m.method === 'Runtime.exceptionThrown')
            this.errors.push(m.params.exceptionDetails.exception?.description || m.params.exceptionDetails.text);
        if (m.method === 'Log.entryAdded' && m.params.entry.level === 'error')
            this.errors.push(m.params.entry.text);
        if (m.method === 'Network.requestWillBeSent' && !/^(file|blob|data):/.test(m.params.request.url))
            this.requests.push(m.params.request.url);
    }
    async evaluate(code) {
        const r = await this.send('Runtime.evaluate', { expression: code, awaitPromise: true, returnByValue: true });
        if (r.exceptionDetails)
            throw new Error(code + ': ' + (r.exceptionDetails.exception?.description || r.exceptionDetails.text));
        return r.result.value;
    }
    async until(code, seconds = 60) {
        for (const end = Date.now() + 1000 * seconds; Date.now() < end; await sleep(50))
            if (await this.evaluate(`!!(${code})`).catch(() => false))
                return;
        throw new Error('never: ' + code);
    }
    async click(selector) {
        const at = await this.evaluate(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); `
            + `e.scrollIntoView({ block: 'center' });
            const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()`);
        await this.mouse('mouseMoved', at);
        await this.mouse('mousePressed', at);
        await this.mouse('mouseReleased', at);
    }
    mouse(type, { x, y }) {
        return this.send('Input.dispatchMouseEvent', { type, x, y, button: type === 'mouseMoved' ? 'none' : 'left', clickCount: 1 });
    }
    drag({ x, y }) {
        return this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y, button: 'left', buttons: 1 });
    }
    wheel({ x, y }, deltaY) {
        return this.send('Input.dispatchMouseEvent', { type: 'mouseWheel', x, y, deltaX: 0, deltaY });
    }
    async press(key, modifiers = 0) {
        const text = key.length === 1 ? key : key === 'Enter' ? '\r' : undefined;
        await this.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', key, text, modifiers,
            windowsVirtualKeyCode: CODES[key] });
        await this.send('Input.dispatchKeyEvent', { type: 'keyUp', key, modifiers, windowsVirtualKeyCode: CODES[key] });
    }
    async type(text) {
        await this.send('Input.insertText', { text });
    }
    async shot(file, whole = true) {
        const { cssContentSize: size } = await this.send('Page.getLayoutMetrics');
        const { data } = await this.send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: whole,
            ...(whole ? { clip: { x: 0, y: 0, width: size.width, height: Math.min(size.height, 12000), scale: 1 } } : {}) });
        fs.writeFileSync(file, Buffer.from(data, 'base64'));
    }
}

const CODES = { ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, Enter: 13, Tab: 9, Escape: 27, Home: 36, End: 35, '+': 187,
    '-': 189, '0': 48 };

module.exports = { open_browser, sleep };
