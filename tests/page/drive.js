// drive.js -- the page in headless Chromium, by mouse and keyboard: drive.js PAGE.HTML SEEDS-FOLDER ANSWERS-FILE SHOTS-FOLDER.
//
// Prints a line for each thing that must hold: "ok WHAT", or "not ok WHAT: why".  What was shown of plans is written to
// ANSWERS-FILE, a line each:
// the request, a tab, the answer, so that the native library can be asked the same; ANSWERS-FILE.words has each plan, a tab, and the
// words of its verdict.
'use strict';
const fs = require('fs'), path = require('path');
const { open_browser, sleep } = require('./chromium.js'),
    { holds, same, clean, settled, pick, number, stop, button } = require('./reader.js');
const [, , html, seeds, answers, shots] = process.argv, url = 'file://' + path.resolve(html);
const CHANGES = Number(process.env.PAGE_CHANGES || 100);

async function opens(browser) {
    const page = await browser.page(url);
    await holds('the first answer comes by itself', () => page.until("document.querySelector('#verdict .word')"));
    await holds('a search ends, and recommends a plan', () => page.until("state.found && state.by === 'search'", 240));
    await holds('figures are drawn', async () => {
        for (const id of ['plans', 'memory', 'streams', 'comm', 'time', 'whatif'])
            await page.until(`document.querySelector('#${id} .box svg')`);
    });
    await holds('a command gives the same search in a shell', async () => {
        await button(page, '#take', 'the search in a shell');
        fs.writeFileSync(answers + '.search', await page.evaluate('plan_said(state.found.plans[0]) + "\\n" + '
            + "document.querySelector('#take pre').textContent"));
    });
    await holds('a command gives the same plan in a shell', async () => {
        await button(page, '#take', 'this plan in a shell');
        fs.writeFileSync(answers + '.plan', await page.evaluate('plan_said(state.answer) + "\\n" + '
            + "document.querySelector('#take pre').textContent"));
    });
    await holds('nothing is asked of any host, and no script fails', () => clean(page));
    return page;
}

// What a keyboard and a mouse change, one after the other; each plan shown is kept.
async function thirty_plans(page) {
    const shown = [], told = [];
    const keep = async what => {
        await settled(page);
        const a = await page.evaluate('JSON.stringify([state.answer, document.getElementById("said").textContent])');
        const [answer, said] = JSON.parse(a);
        if (said)
            throw new Error(`${what}: ${said}`);
        shown.push(JSON.stringify({ plan: answer.plan, detail: true }) + '\t' + JSON.stringify(answer));
        const tiles = await page.evaluate("[...document.querySelectorAll('#verdict .tile')].slice(0, 3).map(t => "
            + "[...t.querySelectorAll('b, .more')].map(e => e.textContent)).flat()");
        told.push(JSON.stringify(answer.plan) + '\t' + tiles.map(w => w.replace(/^reserved |^needed |^nine of ten runs: | usable$/g, '')
            .replace(/^(.* to .*)\u00a0(s|ms|hours)$/, '$1').replace(/ of it allocated$/, ' allocated')).join('|'));
    };
    const steps = [
        ...['ArrowLeft', 'ArrowLeft', 'ArrowRight', 'ArrowRight', 'ArrowRight']
            .map(k => ['seq slider ' + k, async () =>
            { await page.evaluate("document.getElementById('seq-slide').focus()"); await page.press(k); }]),
        ...['ArrowLeft', 'ArrowRight', 'ArrowRight'].map(k => ['batch slider ' + k,
            async () => { await page.evaluate("document.getElementById('batch-slide').focus()"); await page.press(k); }]),
        ...['ArrowRight', 'ArrowRight', 'ArrowLeft', 'ArrowLeft', 'ArrowLeft']
            .map(k => ['GPUs slider ' + k,
            async () => { await page.evaluate("document.getElementById('gpus-slide').focus()"); await page.press(k); }]),
        ['8 GPUs', () => number(page, '#gpus', 8)], ['4096 tokens', () => number(page, '#seq', 4096)],
            ['64 samples', () => number(page, '#batch', 64)],
        ...['a100-80gb', 'h200', 'b200', 'h100'].map(g => ['GPU ' + g, () => pick(page, '#gpu', g)]),
        ...['lora', 'qlora', 'all'].map(t => ['trains ' + t, () => pick(page, '#trains', t)]),
        ...['llama-3.2-1b', 'qwen3-8b', 'mistral-7b', 'llama-3.1-8b'].map(m => ['model ' + m, () => pick(page, '#model', m)]),
        ['fsdp of torch', () => pick(page, '#change select', 'fsdp torch')],
        ...[['recompute', 'none'], ['micro_batch', '2'], ['precision', 'fp32']].map(([key, value]) => [key + ' ' + value, async () => {
            const id = await page.evaluate(`[...document.querySelectorAll('#change .knob')].find(k => `
                + `k.querySelector('code').textContent === ${JSON.stringify(key)}).querySelector('input,select').id`);
            await pick(page, '#' + id, value);
        }]),
    ];
    for (const [what, act] of steps)
        await holds(what + ' is answered', async () => {
            await act();
            await sleep(80);
            await keep(what);
            await stop(page);
        });
    fs.writeFileSync(answers, shown.join('\n') + '\n');
    fs.writeFileSync(answers + '.words', told.join('\n') + '\n');
    await holds('thirty plans, and no script fails',
        () => { clean(page); if (shown.length < 30) throw new Error(`${shown.length} plans`); });
}

async function taken_away(browser, page) {
    const text = () => page.evaluate("document.querySelector('#take pre').textContent");
    const take = words => button(page, '#take', words);
    await holds('the shell command has the question', async () => {
        await take('the search in a shell');
        const said = await text();
        for (const part of ['dpxplan search', '--model ', '--cluster ', '--seq ', '--global-batch '])
            if (!said.includes(part))
                throw new Error(`no ${part} in ${said}`);
    });
    await holds('a link brings back the plan', async () => {
        await take('link to this plan');
        const link = await text(), other = await browser.page(link), of = p => p.evaluate('JSON.stringify(state.answer)');
        await other.until("state.by === 'file' && state.answer");
        same(await of(other), await of(page), 'answer');
        await other.send('Page.close');
    });
    await holds('a link brings back the question', async () => {
        await take('link to the question');
        const other = await browser.page(await text()), of = p => p.evaluate('JSON.stringify(state.q)');
        await settled(other);
        same(await of(other), await of(page), 'question');
        await other.send('Page.close');
    });
    await holds('an export is shown, or why there is none', async () => {
        await take('fsdp');
        await page.until("document.querySelector('#take pre').textContent.length > 100");
    });
    await holds('a figure is a file of its own', async () => {
        const svg = await page.evaluate("svg_file(document.querySelector('#memory svg'))");
        if (!svg.startsWith('<svg') || /var\(--/.test(svg) || !svg.includes('http://www.w3.org/2000/svg'))
            throw new Error(svg.slice(0, 200));
    });
}

const MARK = '<img src=x onerror="window.taken=1"><script>window.taken=1</script>';

async function hostile(browser) {
    const page = await browser.page(url);
    await settled(page);
    const config = { model_type: 'llama', _name_or_path: MARK, vocab_size: 1000, hidden_size: 256, intermediate_size: 512,
        num_hidden_layers: 2, num_attention_heads: 4, max_position_embeddings: 512 };
    await holds('names with markup are text', async () => {
        await page.evaluate(`bring(${JSON.stringify(JSON.stringify(config))}, ${JSON.stringify(MARK)})`);
        await settled(page);
        await page.evaluate(`bring(${JSON.stringify(JSON.stringify({ ...config, model_type: MARK }))}, 'config.json')`);
        await page.until("!document.getElementById('said').hidden");
        await page.evaluate(`bring(${JSON.stringify(JSON.stringify({ dpx_plan: 1, model: MARK, strategy: MARK }))}, 'plan.json')`);
        await sleep(500);
        same(await page.evaluate("String(window.taken) + document.querySelectorAll('img').length"), 'undefined0',
            'markup became elements');
        same(page.errors.join('; '), '', 'errors of scripts');
    });
    for (const file of fs.readdirSync(seeds, { recursive: true }).filter(f => fs.statSync(path.join(seeds, f)).isFile())
        .slice(0, Number(process.env.PAGE_SEEDS || 60)))
        await page.evaluate(`bring(${JSON.stringify(fs.readFileSync(path.join(seeds, file), 'latin1'))}, `
            + `${JSON.stringify(path.basename(file))})`);
    await holds('seeds of the fuzzers are read or refused, and the page lives', async () => {
        clean(page);
        await page.evaluate("set_question({ ...USUAL })");
        await settled(page);
    });
}

async function broken_links(browser) {
    for (const fragment of ['#%E0%A4%A', '#{', '#[]', '#' + encodeURIComponent('{"q":{"gpus":-1}}'),
        '#' + encodeURIComponent('{"q":{"__proto__":1,"model":[]}}'),
        '#' + encodeURIComponent('{"q":{"more":{"x":{}}}}'), '#' + 'x'.repeat(100000)])
        await holds(`a broken link opens the start page with one line (${fragment.slice(0, 24)})`, async () => {
            const page = await browser.page(url + fragment);
            await page.until("document.getElementById('said').textContent === 'The link cannot be read: this is the start page.'");
            await page.until("document.querySelector('#verdict .word')");
            same(await page.evaluate('JSON.stringify(state.q) === JSON.stringify(USUAL)'), true, 'the usual question');
            clean(page);
            await page.send('Page.close');
        });
}

async function unanswered_links(browser) {
    for (const [what, link] of [['a plan', { q: {}, plan: { dpx_plan: 1, model: MARK } }], ['a question', { q: { model: MARK } }]])
        await holds(`a link with ${what} that is no such opens the start page with one line`, async () => {
            const page = await browser.page(url + '#' + encodeURIComponent(JSON.stringify(link)));
            await page.until("/^The link cannot be answered: .*<img/.test(document.getElementById('said').textContent)");
            await page.until("state.by === 'search'", 240);
            same(await page.evaluate("JSON.stringify(state.q) === JSON.stringify(USUAL) && !document.getElementById('said').hidden"), true,
                'the usual question, and the line');
            clean(page);
            await page.send('Page.close');
        });
}

async function stays_small(page) {
    const used = async () => {
        await page.send('HeapProfiler.collectGarbage');
        const { metrics } = await page.send('Performance.getMetrics'), of = name => metrics.find(m => m.name === name).value;
        return { heap: of('JSHeapUsedSize'), nodes: of('Nodes'), library: await page.evaluate('answers.size') };
    };
    await page.send('Performance.enable');
    await holds(`memory stays bounded over ${CHANGES} changes of a slider`, async () => {
        await page.evaluate("document.getElementById('seq-slide').focus()");
        let early = null;
        for (let i = 0; i < CHANGES; i++) {
            await page.press(i % 2 ? 'ArrowRight' : 'ArrowLeft');
            if (i % 10 === 9) {
                await settled(page);
                await stop(page);
            }
            if (i === 49)
                early = await used();
        }
        const late = await used(), told = JSON.stringify([early, late]);
        if (late.heap > early.heap * 1.5 + (8 << 20) || late.nodes > early.nodes * 1.5 + 2000 || late.library > early.library
            + (16 << 20))
            throw new Error(told);
    });
}

async function looks(browser) {
    for (const width of [360, 1280, 2560])
        for (const dark of [false, true])
            await holds(`${width} pixels, ${dark ? 'dark' : 'light'}: nothing is wider than the page`, async () => {
                const page = await browser.page(url, { width, height: 900, dark });
                await settled(page);
                await page.until("document.querySelector('#whatif .box svg')");
                same(await page.evaluate('document.documentElement.scrollWidth'), width, 'width');
                if (shots) {
                    await page.until("state.found", 240);
                    await sleep(1500);
                    await page.shot(path.join(shots, `${width}-${dark ? 'dark' : 'light'}.png`));
                }
                await page.send('Page.close');
            });
}

// A reader without a mouse, or without eyes: whatever can be used can be reached, and has a name.
async function named(page) {
    await holds('whatever can be used has a name and can be reached by keys', async () => {
        await page.evaluate("document.querySelectorAll('#plan details').forEach(d => { d.open = true; })");
        await sleep(300);
        const { nodes } = await page.send('Accessibility.getFullAXTree');
        const of = n => `${n.role.value} ${n.nodeId}`, used = ['button', 'combobox', 'slider', 'spinbutton', 'textbox', 'searchbox', 'tab',
            'image', 'link'];
        same(nodes.filter(n => !n.ignored && used.includes(n.role?.value) && !n.name?.value).map(of).join(), '', 'without a name');
        const is = (n, what) => n.properties?.some(p => p.name === what && p.value.value);
        same(nodes.filter(n => !n.ignored && used.includes(n.role?.value) && !['tab', 'image'].includes(n.role.value)
            && !is(n, 'disabled') && !is(n, 'focusable')).map(of).join(), '', 'out of reach');
        await page.evaluate("document.getElementById('tab-plan').focus()");
        await page.press('ArrowRight');
        same(await page.evaluate("document.activeElement.id + document.getElementById('learn').hidden"), 'tab-learnfalse', 'tabs by keys');
        await page.press('ArrowLeft');
    });
}

// On paper: what is asked and answered, without what cannot be pressed there.
async function printed(page) {
    await holds('it prints: pictures whole, no buttons', async () => {
        await page.send('Emulation.setEmulatedMedia', { media: 'print' });
        same(await page.evaluate("[...document.querySelectorAll('nav, .tools, #take, #change')].filter(e => e.offsetHeight).length"), 0,
            'for the screen alone');
        const { data } = await page.send('Page.printToPDF', { printBackground: true });
        if (data.length < 20000)
            throw new Error(`${data.length} characters`);
        if (shots)
            await page.shot(path.join(shots, 'print.png'));
        await page.send('Emulation.setEmulatedMedia', { media: '' });
    });
}

async function learns(page) {
    await holds('every lesson is drawn', async () => {
        await page.click('#tab-learn');
        await page.until("document.querySelectorAll('#learn .lesson svg').length >= 10 && ![...document.querySelectorAll('#learn "
            + ".lesson')].some(l => !l.querySelector('svg'))", 180);
        same(await page.evaluate("[...document.querySelectorAll('#learn .wrong')].map(w => w.textContent).join('')"), '', 'refused');
        if (shots)
            await page.shot(path.join(shots, 'learn.png'));
        clean(page);
    });
}

(async () => {
    const browser = await open_browser();
    try {
        const page = await opens(browser);
        await thirty_plans(page);
        await taken_away(browser, page);
        await named(page);
        await printed(page);
        await stays_small(page);
        await learns(page);
        await hostile(browser);
        await broken_links(browser);
        await unanswered_links(browser);
        await looks(browser);
    } catch (e) {
        console.log('not ok the tests ran to their end: ' + e.message.split('\n')[0]);
    }
    browser.close();
})();
