// questions.js -- random questions, the same for the same seed: questions.js DPX.JS FITS-FOLDER SEED PLANS SEARCHES.  What is drawn
// from are the
// library's own tables: models, GPUs, strategies, and the keys of each with their values.
'use strict';
const { library_of, ask } = require('./answers.js');

let state = Number(process.argv[4]);
const random = n => {       // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % n;
};
const one = list => list[random(list.length)];

function value_of(k) {
    const words = k.values.split(', ').filter(w => /^[\w-]+$/.test(w));
    if (words.length > 1)
        return one(words);
    const range = k.values.match(/^(?:above )?(\d+)(?: to (\d+)| or more)/);
    return range ? one([Number(range[1]), 1, 2, 4, 8]) : null;
}

function plan(t) {
    const cell = one(t.strategies), keys = t.keys.filter(k => k.cells.some(c => c.strategy === cell.strategy
        && c.dialect === cell.dialect));
    const p = { dpx_plan: 1, model: one(t.models).name, cluster: one(['1x', '2x', '4x', '8x', '2x8x', '4x4x']) + one(t.gpus).name,
        ...cell, seq: 1 << 8 + random(5),
        micro_batch: 1 + random(2), accumulation: 1 << random(4), precision: one(['bf16', 'fp32']), recompute: one(['none', 'full']) };
    const set = {};
    for (let i = random(3); i > 0; i--) {
        const k = one(keys), v = value_of(k);
        if (v !== null && !(k.key in p))
            set[k.key] = v;
    }
    return { plan: p, set };
}

const search = t => ({ model: one(['gpt2', 'gpt2-medium', 'qwen3-0.6b', 'llama-3.2-1b']
    .filter(n => t.models.some(m => m.name === n))), cluster: one(['2x', '4x', '8x']) + one(t.gpus).name,
    seq: 1 << 9 + random(3), global_batch: 8 << random(3), threads: 1,
        ...one([{}, { framework: 'torch' }, { framework: 'deepspeed' }, { lora: 8 }, { no_offload: true }]) });

library_of(process.argv[2], process.argv[3]).then(m => {
    const t = {};
    for (const what of ['models', 'gpus', 'strategies', 'keys'])
        t[what] = JSON.parse(ask(m, 'list', JSON.stringify({ what })).answer)[what];
    t.models = t.models.filter(k => k.params < 2e10);
    for (let i = 0; i < Number(process.argv[5]); i++)
        console.log(one(['eval', 'eval', 'explain']) + '\t' + JSON.stringify(plan(t)));
    for (let i = 0; i < Number(process.argv[6]); i++)
        console.log('search\t' + JSON.stringify(search(t)));
});
