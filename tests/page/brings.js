// brings.js -- what a reader drops on the page or pastes: each form is read, answered, and says what it left out: brings.js PAGE.HTML.
'use strict';
const fs = require('fs'), path = require('path');
const { open_browser } = require('./chromium.js'), { holds, same, clean, settled } = require('./reader.js');
const url = 'file://' + path.resolve(process.argv[2]), read = file => fs.readFileSync(file, 'utf8');

const PLAN = { dpx_plan: 1, model: 'llama-3.2-1b', cluster: '4xa100-80gb', strategy: 'zero2', dialect: 'deepspeed', precision: 'bf16',
    seq: 2048, micro_batch: 2, accumulation: 2, recompute: 'full' };
const CONFIG = { model_type: 'llama', vocab_size: 32000, hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 12,
    num_attention_heads: 16, max_position_embeddings: 4096 };

// Of each form: its name, its text, and what the plan that is shown must have.
const FORMS = [
    ['plan.json', JSON.stringify(PLAN), 'p.strategy + p.dialect + p.seq + p.cluster.gpu', 'zero2deepspeed2048a100-80gb'],
    ['config.json', JSON.stringify(CONFIG), 'p.model.hidden_size + "," + p.model.num_hidden_layers', '1024,12'],
    ['ds_config.json', read('demo/ds-zero3.json'), 'p.strategy + p.dialect + p.micro_batch', 'zero3deepspeed2'],
    ['accelerate.yaml', read('tests/fuzz/seeds/form/accelerate.yaml'), 'p.strategy + p.dialect', 'fsdptorch'],
    ['axolotl.yaml', read('tests/fuzz/seeds/form/axolotl.yaml'), 'p.model._name_or_path + p.seq + p.lora.rank', 'gpt2648'],
    ['factory.yaml', read('tests/fuzz/seeds/form/factory.yaml'), 'p.model._name_or_path + p.seq + p.train', 'gpt264lora'],
    ['trl.yaml', read('demo/qwen3-sft.yaml'), 'p.model._name_or_path + p.seq', 'qwen3-8b8192'],
    ['megatron.txt', read('demo/megatron-8b.txt'), 'p.parallel.tensor + "," + p.parallel.pipeline + p.dialect', '2,2megatron'],
];

async function drop(page, name, text) {
    await page.evaluate(`(() => {
        const data = new DataTransfer();
        data.items.add(new File([${JSON.stringify(text)}], ${JSON.stringify(name)}));
        document.getElementById('imported').hidden = true;
        document.body.dispatchEvent(new DragEvent('dragenter', { bubbles: true, dataTransfer: data }));
        if (document.getElementById('drop').hidden)
            throw new Error('the page does not say that it takes a file');
        document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: data }));
    })()`);
}

async function forms(page) {
    for (const [name, text, of, should] of FORMS)
        await holds(`${name} is dropped, read and answered`, async () => {
            await page.evaluate('state.q = { ...USUAL }; put_form()');
            await drop(page, name, text);
            const got = `(() => { try { const p = state.answer.plan; return String(${of}); } catch { return ''; } })()`;
            await page.until(`${got} === ${JSON.stringify(should)} || !document.getElementById('said').hidden`, 30).catch(() => {});
            same(await page.evaluate("document.getElementById('said').textContent"), '', 'refused');
            same(await page.evaluate(got), should, 'plan');
            await settled(page);
            if (!/plan|config/.test(name))
                await page.until("!document.getElementById('imported').hidden");        // what it left out
        });
}

// The same, pasted: a reader's button, and a text without a name.
async function pasted(page) {
    await holds('a pasted text needs no name', async () => {
        await page.evaluate("document.getElementById('bring').open = true");
        await page.evaluate(`document.getElementById('pasted').value = ${JSON.stringify(JSON.stringify({ ...PLAN, seq: 1024 }))}`);
        await page.click('#read');
        await page.until('state.answer.plan.seq === 1024');
    });
    await holds('the text of an out-of-memory error is explained', async () => {
        await page.evaluate(`document.getElementById('pasted').value = ${JSON.stringify(read('demo/oom.txt'))}`);
        await page.click('#read');
        await page.until("/7.83 GiB|39.39|capacity/.test(document.getElementById('imported').textContent)");
    });
    await holds('statistics of memory are explained', async () => {
        await drop(page, 'stats.json', read('tests/fuzz/seeds/oom/stats.json'));
        await page.until("!document.getElementById('imported').hidden && document.getElementById('imported').textContent.length > 20");
    });
    await holds('what is no file of a framework is refused in words', async () => {
        await drop(page, 'notes.txt', 'buy milk');
        await page.until("!document.getElementById('said').hidden");
    });
    await holds('what of a plan is the form\'s is said', async () => {
        await page.evaluate("set_question({ ...USUAL, model: 'qwen3-8b' })");
        await drop(page, 'run.sh', read('demo/megatron-8b.txt'));
        await page.until("/With what the form has: .*36 layers/.test(document.getElementById('said').textContent)");
        await page.evaluate("set_question({ ...USUAL })");
        await drop(page, 'run.sh', read('demo/megatron-8b.txt'));
        await page.until("/From the form: 8xh100, llama-3.1-8b/.test(document.getElementById('imported').textContent)");
    });
    await holds('a file that is too large is refused by its size', async () => {
        await page.evaluate("bring_file(new File([new Uint8Array(17 << 20)], 'large.json'))");
        await page.until("/large.json: 17.00 MiB/.test(document.getElementById('said').textContent)");
    });
    await holds('what is said of a file stays when answers to an earlier question come', async () => {
        await page.evaluate("set_question({ ...USUAL, seq: 2048 }); state.found = null; "
            + "bring_file(new File([new Uint8Array(17 << 20)], 'large.json'))");
        await page.until('state.answer.plan.seq === 2048 && state.found');
        await settled(page);
        same(await page.evaluate("document.getElementById('said').textContent.split(':')[0]"), 'large.json', 'said');
    });
    await holds('the next question takes away what was said', async () => {
        await page.evaluate("set_question({ ...USUAL })");
        await page.until("document.getElementById('said').hidden");
    });
}

(async () => {
    const browser = await open_browser();
    try {
        const page = await browser.page(url);
        await settled(page);
        await page.until('state.cells');
        await forms(page);
        await pasted(page);
        await holds('no script fails, nothing is asked of a host', () => clean(page));
    } catch (e) {
        console.log('not ok the tests ran to their end: ' + e.message.split('\n')[0]);
    }
    browser.close();
})();
