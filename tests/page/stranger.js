// stranger.js -- two questions of somebody who never saw dpx, answered by clicks and keys alone: stranger.js PAGE.HTML [SHOTS-FOLDER].
// With a folder, it also keeps how long each took from the opening of the file; two minutes are the aim, of a machine that is not busy.
'use strict';
const fs = require('fs'), path = require('path');
const { open_browser, sleep } = require('./chromium.js'), { holds, clean, settled } = require('./reader.js');
const [, , html, shots] = process.argv, url = 'file://' + path.resolve(html), LIMIT_S = 120;

const shot = async (page, name) => { if (shots) await page.shot(path.join(shots, `stranger-${name}.png`), false); };

// A choice of a list by its keys, as somebody types the first letters; again, if the machine was too slow between two of them.
async function type_choice(page, id, letters) {
    const chosen = `document.getElementById('${id}').selectedOptions[0].textContent.toLowerCase()`;
    for (let turn = 0; turn < 5; turn++) {
        await page.evaluate(`document.getElementById('${id}').focus()`);
        for (const c of letters)
            await page.press(c);
        if (await page.evaluate(`${chosen}.startsWith(${JSON.stringify(letters.toLowerCase())})`))
            return;
        await sleep(1500);
    }
    throw new Error(`${id}: keys do not choose ${letters}`);
}
async function type_number(page, id, n) {
    await page.click('#' + id);
    await page.evaluate(`document.getElementById('${id}').select()`);
    await page.type(String(n));
}

async function answered(browser, what, f) {
    await holds(what, async () => {
        const begin = Date.now(), page = await browser.page(url, { width: 1280, height: 900 });
        await settled(page);
        await f(page);
        clean(page);
        if (shots)
            fs.appendFileSync(path.join(shots, 'seconds.txt'), `${Math.round((Date.now() - begin) / 1000)} s: ${what}\n`);
        await page.send('Page.close');
    });
}

(async () => {
    const browser = await open_browser();
    try {
        await answered(browser, 'how many H100 for a 70B with LoRA at 8k?', async page => {
            await type_choice(page, 'model', 'llama-3.1-70');
            await type_choice(page, 'trains', 'LoRA');
            await type_number(page, 'seq', 8192);
            await page.until("!document.getElementById('fewest').hidden", LIMIT_S);
            const said = await page.evaluate("document.getElementById('fewest').innerText"), asked = await page.evaluate('state.q');
            if (asked.model !== 'llama-3.1-70b' || asked.trains !== 'lora' || asked.gpu !== 'h100' || asked.seq !== 8192)
                throw new Error('the form asks ' + JSON.stringify(asked));
            if (!/^The fewest H100 .* that hold it, nothing offloaded: \d+, as /.test(said))
                throw new Error(said);
            await page.evaluate('scrollTo(0, 0)');
            await shot(page, 'lora-70b');
        });
        await answered(browser, 'why does my 13B not fit on 8 A100-40, and what is the cheapest change?', async page => {
            await type_choice(page, 'model', 'llama-2-13');
            await type_choice(page, 'gpu', 'A100 SXM4 40');
            await page.until("!document.querySelector('#plan').classList.contains('old') "
                + "&& state.answer.plan.cluster.gpu === 'a100-40gb'", LIMIT_S);
            const asked = await page.evaluate('state.q');
            if (asked.model !== 'llama-2-13b' || asked.gpu !== 'a100-40gb' || asked.gpus !== 8)
                throw new Error('the form asks ' + JSON.stringify(asked));
            // The plan of the question: somebody's own, which does not recompute.
            await page.until("document.querySelector('#change .knob')");
            await page.evaluate("[...document.querySelectorAll('#change .knob')].find(k => k.querySelector('code').textContent "
                + "=== 'recompute').querySelector('select').focus()");
            await page.press('n');
            await page.until("!document.getElementById('whynot').hidden", LIMIT_S);
            await page.until("/the least time, so the cheapest/.test(document.getElementById('whynot').textContent)", LIMIT_S);
            if (!/The first buffer that does not fit: /.test(await page.evaluate("document.getElementById('whynot').textContent")))
                throw new Error('it does not say why');
            await page.evaluate("document.getElementById('verdict').scrollIntoView()");
            await shot(page, '13b-why');
        });
    } catch (e) {
        console.log('not ok the tests ran to their end: ' + e.message.split('\n')[0]);
    }
    browser.close();
})();
