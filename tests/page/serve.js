// serve.js -- the page of dpxplan serve in headless Chromium: serve.js ADDRESS DATABASE-OR-NOTHING.  Prints "ok WHAT" or "not ok WHAT: why".
'use strict';
const { open_browser } = require('./chromium.js');
const [, , address, db] = process.argv, origin = address.trim().replace(/\/\?.*/, '');

async function holds(what, f) {
    try {
        const why = await f();
        console.log(why ? `not ok ${what}: ${why}` : 'ok ' + what);
    } catch (e) {
        console.log(`not ok ${what}: ${e.message.split('\n')[0]}`);
    }
}

const said = page => page.evaluate("document.getElementById('said').textContent");

(async () => {
    const browser = await open_browser();
    try {
        const page = await browser.page(address.trim());
        await holds('the served page answers', () => page.until("document.querySelector('#verdict .word')"));
        await holds('dpxplan draws its figures', () => page.until("['memory', 'streams', 'comm', 'time'].every(id => document.querySelector(`#${id} .box svg`))"));
        await holds('it searches with the native library', () => page.until("state.found && state.by === 'search'", 240));
        await holds('recorded runs stand beside their predictions', async () => {
            await page.until("!document.getElementById('runs').hidden");
            const words = await page.evaluate("document.getElementById('runs').textContent");
            return (db ? /finished, 3 steps on 2/ : /None yet/).test(words) ? '' : words;
        });
        if (db)
            await holds('a recorded plan is shown, and names with markup are text', async () => {
                await page.evaluate("document.querySelector('#runs td button').click()");
                await page.until("state.answer.plan.model._name_or_path === '<b>tiny</b>'");
                return await page.evaluate("document.querySelector('#plan b b') ? 'markup became an element' : ''");
            });
        await holds('a file that is dropped is read without a file of this machine', async () => {
            await page.evaluate("bring('compute_environment: LOCAL_MACHINE\\ndistributed_type: FSDP\\nfsdp_config:\\n  fsdp_version: 2\\nnum_processes: 8\\n', "
                + "'accelerate.yaml')");
            await page.until("state.by === 'file' || !document.getElementById('said').hidden");
            return said(page);
        });
        await holds('a request that names a file of this machine is refused', async () => {
            await page.evaluate("explain({ dpx_plan: 1, model: '/etc/passwd', cluster: '8xh100', strategy: 'ddp' }, 'file')");
            await page.until("!document.getElementById('said').hidden");
            const words = await said(page);
            return words === '/etc/passwd: dpxplan serve reads no files: give the document itself' ? '' : words;
        });
        await holds('a search is stopped, and another one answers', async () => {
            await page.evaluate("set_question({ ...USUAL, gpus: 512, batch: 1024, model: 'llama-3.1-70b' })");
            await page.until("!document.getElementById('bar').hidden && document.getElementById('bar').value > 0");
            await page.evaluate("document.getElementById('stop').click()");
            await page.evaluate("set_question({ ...USUAL, model: 'gpt2', seq: 1024 })");
            await page.until("state.found && state.found.model.name === 'gpt2'", 120);
        });
        await holds('a link keeps the token to itself', async () => {
            await page.evaluate("[...document.querySelectorAll('#take button')].find(b => b.textContent === 'link to the question').click()");
            const link = await page.evaluate("document.querySelector('#take pre').textContent");
            return /token|127\.0\.0\.1/.test(link) || !link.startsWith('dpx.html#') ? link : '';
        });
        await holds('no script fails, and only this address is asked', () => {
            const others = page.requests.filter(r => !r.startsWith(origin + '/'));
            return [...page.errors, ...others].join('; ');
        });
        const other = await browser.page('data:text/html,<p>another page');
        await holds('another page gets no answer', () => other.evaluate(`fetch(${JSON.stringify(origin + '/ask/list')}, { method: 'POST', body: '{}',
            headers: { 'Content-Type': 'application/json', 'X-Dpx-Token': 'x' } }).then(r => 'it read status ' + r.status, () => '')`));
        await holds('nor by a form, or as a frame', () => other.evaluate(`fetch(${JSON.stringify(address.trim())}, { mode: 'no-cors' })
            .then(r => r.type === 'opaque' && r.status === 0 ? '' : 'it read ' + r.type, () => '')`));
    } catch (e) {
        console.log('not ok the tests ran to their end: ' + e.message.split('\n')[0]);
    }
    browser.close();
})();
