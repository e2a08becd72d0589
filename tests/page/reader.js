// reader.js -- what a reader does to the page, for the scripts beside it.  Each prints "ok WHAT", or "not ok WHAT: why", for each thing
// that must hold.
'use strict';

async function holds(what, f) {
    try {
        await f();
        console.log('ok ' + what);
    } catch (e) {
        console.log(`not ok ${what}: ${e.message.split('\n')[0]}`);
    }
}
function same(is, should, what) {
    if (is !== should)
        throw new Error(`${what}: ${is}, not ${should}`);
}
const clean = page => {
    same(page.errors.join('; '), '', 'errors of scripts');
    same(page.requests.join('; '), '', 'requests');
};
const settled = page => page.until("document.querySelector('#verdict .word') && "
    + "!document.querySelector('#plan').classList.contains('old')");
const verdict = page => page.evaluate("document.getElementById('verdict').textContent");     // with its words

// The value of a select, by keyboard: the same event as a reader's.
async function pick(page, selector, value) {
    await page.evaluate(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); e.focus(); e.value = `
        + `${JSON.stringify(value)};
        e.dispatchEvent(new Event('input', { bubbles: true })); e.dispatchEvent(new Event('change', { bubbles: true })); })()`);
}
async function number(page, selector, value) {
    await page.evaluate(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); e.focus(); e.select(); })()`);
    await page.type(String(value));
}
const stop = page => page.evaluate("document.getElementById('stop').hidden || document.getElementById('stop').click()");

// A button of a section, by its words.
const button = (page, within, words) => page.evaluate(`[...document.querySelectorAll(${JSON.stringify(within + ' button')})].find(b => `
    + `b.textContent === ${JSON.stringify(words)}).click()`);

module.exports = { holds, same, clean, settled, verdict, pick, number, stop, button };
