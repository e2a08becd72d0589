// pictures.js -- the figures of the page, and what a mouse and a keyboard find in each: pictures.js PAGE.HTML.
'use strict';
const path = require('path');
const { open_browser, sleep } = require('./chromium.js'), { holds, same, clean, settled, button } = require('./reader.js');
const url = 'file://' + path.resolve(process.argv[2]);

const has = (words, ...parts) => parts.forEach(p => { if (!words.includes(p)) throw new Error(`no "${p}" in: ${words.slice(0, 300)}`); });
const tip = (page, id) => page.evaluate(`(() => { const t = document.querySelector('#${id} .tip'); `
    + "return t.hidden ? '' : t.innerText; })()");
// The middle of an element, in the middle of the window.
const middle = (page, code) => page.evaluate(`(() => { const e = ${code}; e.scrollIntoView({ block: 'center' }); `
    + 'const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()');
const question = (page, q) => page.evaluate(`(() => { state.q = { ...USUAL, ...${JSON.stringify(q)} }; state.by = 'first'; `
    + 'put_form(); ask(); })()');
const found = (page, seconds = 240) => page.until("state.found && state.by === 'search' && "
    + "!document.querySelector('#plan').classList.contains('old')", seconds);

async function memory(page) {
    await holds('at the peak the mouse finds what lives there', async () => {
        await page.mouse('mouseMoved', await middle(page, "document.querySelector('#memory .peak circle:not(.reach)')"));
        const largest = await page.evaluate("state.answer.step.roles[0].peak.live[0].what");
        has(await tip(page, 'memory'), 'the peak', 'what lives there', largest);
    });
    await holds('arrow keys walk through memory', async () => {
        await page.evaluate("document.querySelector('#memory svg').focus()");
        await page.press('Home');
        await page.press('ArrowRight');
        has(await tip(page, 'memory'), 'into the step', 'GiB');
    });
    await holds('the limit and the peak are named', async () => {
        has(await page.evaluate("document.querySelector('#memory svg').textContent"), 'usable', 'reserved', 'peak');
    });
    await holds('any rank can be asked for', async () => {
        await page.evaluate("(() => { const i = document.querySelector('#memory .pick input'); i.value = 5; "
            + "i.dispatchEvent(new Event('change')); })()");
        await page.until("state.answer.step.roles.some(r => r.rank === 5) && !document.querySelector('#plan').classList.contains('old')");
        await page.evaluate('ask_rank(null)');      // and back to the fullest
        await page.until("state.answer.step.roles[0].rank === state.answer.memory.rank "
            + "&& !document.querySelector('#plan').classList.contains('old')");
    });
}

async function streams(page) {
    const view = () => page.evaluate('JSON.stringify([view.from, view.to, view.of])').then(JSON.parse);
    await holds('the step is zoomed by buttons, keys and wheel, and moved by keys and mouse', async () => {
        const whole = await view();
        await button(page, '#streams', '+');
        const near = await view();
        if (!(near[1] - near[0] < 0.51 * whole[1]))
            throw new Error('buttons do not zoom: ' + near);
        await page.evaluate("document.querySelector('#streams svg').focus()");
        await page.press('ArrowRight');
        const right = await view();
        if (!(right[0] > near[0]))
            throw new Error('keys do not move: ' + right);
        const at = await middle(page, "document.querySelector('#streams svg')");
        await page.mouse('mouseMoved', at);
        await page.mouse('mousePressed', at);
        await page.drag({ x: at.x + 60, y: at.y });
        await page.mouse('mouseReleased', { x: at.x + 60, y: at.y });
        const left = await view();
        if (!(left[0] < right[0]))
            throw new Error('the mouse does not move: ' + left);
        await page.wheel(at, -120);
        const nearer = await view();
        if (!(nearer[1] - nearer[0] < left[1] - left[0]))
            throw new Error('the wheel does not zoom: ' + nearer);
        await page.press('0');
        same(String(await view()), String(whole), 'the whole step');
    });
    await holds('an entry says what it is and how long it takes', async () => {
        const at = await middle(page, "document.querySelector('#streams svg')"),
            row = await page.evaluate("(() => { const s = document.querySelector('#streams svg'); "
                + "return s.getBoundingClientRect().y + Number(s.dataset.rows.split(' ')[0]); })()");
        await page.mouse('mouseMoved', { x: at.x, y: row + 10 });
        has(await tip(page, 'streams'), 'from ');
    });
    await holds('what is exposed is marked', async () => {
        if (await page.evaluate('state.answer.time.exposed_comm_s > 0 && !document.querySelector("#streams path.bare")'))
            throw new Error('no mark');
    });
}

async function pipeline(page) {
    await holds('with a pipeline each stage has its row, and its memory', async () => {
        const plan = { dpx_plan: 1, model: 'llama-3.1-8b', cluster: '8xh100', strategy: 'zero1', dialect: 'megatron', precision: 'bf16',
            seq: 4096, micro_batch: 1, accumulation: 8, recompute: 'full', parallel: { pipeline: 4 } };
        await page.evaluate(`choose(${JSON.stringify(plan)})`);
        await page.until("state.answer.plan.parallel && !document.querySelector('#plan').classList.contains('old')");
        same(await page.evaluate("document.querySelectorAll('#memory .pick button').length"), 4, 'stages to choose');
        same(await page.evaluate("[...document.querySelectorAll('#streams svg text')].filter(t => /^stage/.test(t.textContent))"
            + '.length'), 4, 'rows of stages');
        const peaks = await page.evaluate('state.answer.step.roles.map(r => r.peak.bytes)');
        await page.evaluate("document.querySelectorAll('#memory .pick button')[3].click()");
        await settled(page);
        const always = await page.evaluate('state.answer.step.roles[3].rank === state.answer.memory.rank '
            + '? state.answer.memory.overhead_bytes : 0');
        has(await page.evaluate("document.querySelector('#memory svg').textContent"),
            await page.evaluate(`bytes_words(${peaks[3] + always})`));
    });
}

async function plans(page) {
    await holds('plans have intervals, the recommended one its mark, ties theirs, and the words say it', async () => {
        const n = await page.evaluate('state.found.plans.length');
        same(await page.evaluate("document.querySelectorAll('#plans g.best').length"), 1, 'recommended');
        if (await page.evaluate("document.querySelectorAll('#plans .interval').length") < Math.min(n, 2))
            throw new Error('no intervals');
        same(await page.evaluate("document.querySelectorAll('#plans g.tie').length"), await page.evaluate(
            'state.found.plans.slice(1).filter(p => p.tie).length'), 'ties');
        has(await page.evaluate("document.querySelector('#plans .words').textContent"), 'the prediction\'s error');
    });
    await holds('plans that fit lie left of the limit, but for tight ones', async () => {
        const beyond = await page.evaluate("[...document.querySelectorAll('#plans g.point')].map(g => g.getAttribute('aria-label'))"
            + ".filter(w => !w.includes('tight')).length"), all = await page.evaluate(
            "document.querySelector('#plans .tools').rows().slice(1).filter(r => r[1] <= state.found.usable).length");
        if (beyond > all)
            throw new Error(`${beyond} that are not tight, ${all} within the limit`);
        if (await page.evaluate("document.querySelector('#plans .tools').rows().slice(1).some(r => r[1] > 1.2 * state.found.usable)"))
            throw new Error('a plan that fits takes more than there is');
    });
    await holds('a click on a plan looks inside', async () => {
        const label = await page.evaluate("document.querySelector('#plans g.point:not(.shown)').getAttribute('aria-label').split(',')[0]");
        await page.evaluate("document.querySelector('#plans g.point:not(.shown)').dispatchEvent(new MouseEvent('click'))");
        await page.until("state.by === 'you' && !document.querySelector('#plan').classList.contains('old')");
        has(await page.evaluate("document.querySelector('#verdict').textContent"), label);
    });
}

async function what_if(page) {
    for (const axis of ['sample length', 'GPUs', 'samples at once', 'samples a step', 'network', 'GPU type'])
        await holds(`what if: ${axis}, a curve with its interval`, async () => {
            await page.evaluate("say_in('whatif', '')");
            await button(page, '#whatif', axis);
            await page.until("document.querySelector('#whatif .words').textContent");
            const words = await page.evaluate("document.querySelector('#whatif .words').textContent");
            has(words, 'the 90 % interval');
            if (await page.evaluate("!document.querySelector('#whatif .interval') || !document.querySelector('#whatif .curve')"))
                throw new Error('no curve, or no interval');
        });
}

async function taken(page) {
    await holds('every figure is an SVG of its own, every one has its numbers', async () => {
        for (const id of ['memory', 'streams', 'plans', 'whatif', 'comm', 'time']) {
            const file = await page.evaluate(`svg_file(document.querySelector('#${id} svg'))`);
            if (!file.startsWith('<svg') || /var\(--|NaN|undefined/.test(file))
                throw new Error(`${id}: ${(file.match(/.{30}(var\(--|NaN|undefined).{30}/) || [file.slice(0, 80)])[0]}`);
            const csv = await page.evaluate(`csv_text(document.querySelector('#${id} .tools').rows())`), lines = csv.trim().split('\r\n');
            if (lines.length < 2 || /NaN|undefined/.test(csv))
                throw new Error(`${id}: CSV of ${lines.length} lines`);
        }
    });
    await holds('no number on the page is NaN, undefined or null', async () => {
        const bad = await page.evaluate("(document.getElementById('answer').innerText.match(/.*(NaN|undefined|null|Infinity).*/) "
            + "|| [''])[0]");
        same(bad, '', 'text');
    });
    await holds('the picture of memory has the peak that the words name', async () => {
        if (!await page.evaluate("state.answer.memory.phase !== 'steady' || document.querySelector('#memory svg').textContent"
            + ".includes('peak ' + (state.answer.advice.why.match(/peak of ([^ ]+ [KMGT]iB)/) || [])[1] + ',')"))
            throw new Error(await page.evaluate("document.querySelector('#memory').innerText.slice(0, 300)"));
    });
    await holds('the parts of the time are the step', async () => {
        const [sum, step] = await page.evaluate("(() => { const rows = document.querySelector('#time .tools').rows().slice(1); "
            + 'return [rows.reduce((a, r) => a + r[1], 0), state.answer.time.step_s]; })()');
        if (Math.abs(sum - step) > 1e-6 * step)
            throw new Error(`${sum} and ${step}`);
    });
}

// Each button of "why not" takes another plan, and what was said to fit does.
async function why_not(page) {
    await question(page, { model: 'llama-2-13b', gpu: 'a100-40gb', seq: 4096, batch: 64 });
    await page.until("state.answer.plan.model._name_or_path === 'llama-2-13b' && state.found", 240);
    const plan = { dpx_plan: 1, model: 'llama-2-13b', cluster: '8xa100-40gb', strategy: 'fsdp', dialect: 'torch', precision: 'bf16',
        seq: 4096, micro_batch: 2, accumulation: 4, recompute: 'none' };
    const show = async () => {
        await page.evaluate(`choose(${JSON.stringify(plan)})`);
        await page.until("!document.getElementById('whynot').hidden && state.answer.plan.recompute === 'none' "
            + "&& !document.querySelector('#plan').classList.contains('old')");
    };
    await holds('the first buffer that does not fit is named', async () => {
        await show();
        has(await page.evaluate("document.getElementById('whynot').textContent"), 'The first buffer that does not fit: ',
            await page.evaluate('state.answer.first_over.buffer'));
    });
    const n = await page.evaluate("document.querySelectorAll('#whynot .ways button').length");
    await holds('more GPUs are offered', () => page.until(
        "/More GPUs: (take|none)/.test(document.getElementById('whynot').textContent)", 60));
    for (let i = 0; i < n; i++)
        await holds(`way ${i + 1} of ${n} is a button that does what it says`, async () => {
            await show();
            const [words, line] = await page.evaluate(`(() => { const b = document.querySelectorAll('#whynot .ways button')[${i}]; `
                + 'return [b.textContent, b.parentElement.textContent]; })()');
            const before = await page.evaluate('JSON.stringify(state.answer.plan)');
            await page.evaluate(`document.querySelectorAll('#whynot .ways button')[${i}].click()`);
            await page.until(`JSON.stringify(state.answer.plan) !== ${JSON.stringify(before)} && `
                + "!document.querySelector('#plan').classList.contains('old')");
            const fits = await page.evaluate('state.answer.fits');
            if (/it fits/.test(line) !== fits && !/a step/.test(line))
                throw new Error(`${words}: said "${line}", and it ${fits ? 'fits' : 'does not fit'}`);
        });
}

async function out_of_date(page) {
    await holds('what answers an earlier question is grey until the new answer is there', async () => {
        await page.evaluate("set_question({ ...USUAL, seq: 4096 })");
        const grey = () => page.evaluate("['plan', 'plans', 'whatif']"
            + ".filter(id => document.getElementById(id).classList.contains('old')).join()");
        has(await grey(), 'plan,plans');
        await page.until("state.found && state.by === 'search'", 240);
        await page.until("!document.querySelector('#plan.old, #plans.old, #whatif.old')", 60);
        same(await page.evaluate('state.found.plans[0].plan.seq'), 4096, 'tokens of the plans shown');
    });
}

async function combined(page) {
    const change = (key, value) => page.evaluate(`(() => { const k = [...document.querySelectorAll('#change .knob')].find(k => `
        + `k.querySelector('code').textContent === ${JSON.stringify(key)}), e = k.querySelector('input,select'); `
        + `e.value = ${JSON.stringify(value)}; `
        + "e.dispatchEvent(new Event('change')); })()");
    await holds('what cannot be combined says why, beside its key', async () => {
        await page.evaluate("choose({ dpx_plan: 1, model: 'llama-3.2-1b', cluster: '8xh100', strategy: 'fsdp', dialect: 'torch', "
            + "precision: 'bf16', seq: 1024, micro_batch: 1 })");
        await page.until("state.answer.plan.dialect === 'torch' && state.answer.plan.seq === 1024 "
            + "&& !document.querySelector('#plan').classList.contains('old')");
        await change('shard_group', '3');
        await page.until("[...document.querySelectorAll('#change .wrong')].some(w => /shard_group/.test(w.textContent))");
    });
    await holds('every key has a sentence of its own', async () => {
        await page.evaluate("document.querySelector('#change details').open = true");
        await page.until("document.querySelectorAll('#change details .knob').length > 20");
        same(await page.evaluate("[...document.querySelectorAll('#change .knob')]"
            + ".filter(k => k.querySelector('p').textContent.length < 12).map(k => k.textContent).join()"), '', 'keys without');
        same(await page.evaluate("document.querySelectorAll('#change .knob').length"),
            await page.evaluate('knobs_of(state.keys, state.answer.plan).length'), 'keys');
    });
    await holds('what a search cannot be told is said too', async () => {
        await page.evaluate("set_question({ more: { precision: 'fp64' } })");
        await page.until("/precision/.test(document.getElementById('said').textContent)");
        await page.evaluate('set_question({ more: {} })');
    });
}

(async () => {
    const browser = await open_browser();
    try {
        const page = await browser.page(url);
        await found(page);
        await memory(page);
        await streams(page);
        await taken(page);
        await plans(page);
        await what_if(page);
        await pipeline(page);
        await why_not(page);
        await taken(page);
        await combined(page);
        await out_of_date(page);
        await sleep(100);
        await holds('no script fails, nothing is asked of a host', () => clean(page));
    } catch (e) {
        console.log('not ok the tests ran to their end: ' + e.message.split('\n')[0]);
    }
    browser.close();
})();
