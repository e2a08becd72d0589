// knobs.js -- inputs made from the library's own tables: keys of a plan, each with its sentence, and options of a search.
'use strict';

// An element; texts are set as text.
function el(name, properties = {}, ...children) {
    const e = Object.assign(document.createElement(name), properties);
    e.append(...children.filter(c => c !== null && c !== undefined));
    return e;
}

// "fsdp.cpu_offload" of a plan's document.
const key_value = (plan, key) => key.split('.').reduce((at, part) => is_object(at) && Object.hasOwn(at, part) ? at[part]
    : undefined, plan);

const shown_value = v => v === null ? 'null' : v === undefined ? '' : typeof v === 'object' ? JSON.stringify(v) : String(v);

// The words among which one is chosen; null: it is a number, or a text.
function knob_words(values) {
    const words = values.split(', ');
    return words.every(w => /^[\w-]+$/.test(w)) && !words.includes('ranks') ? words : null;
}

let knobs = 0;

// { key, about, values, default }; change(value as text).  What the program says of a value is shown below it.
function knob(k, value, change) {
    const words = knob_words(k.values), id = 'knob' + knobs++;
    const input = words ? el('select', { id }, ...[...new Set([...words,
        ...(words.includes(value) || value === '' ? [] : [value])])].map(w => el('option', { value: w }, w)))
        : el('input', { id, type: 'text', value, spellcheck: false });
    if (words && value === '')
        input.prepend(el('option', { value: '' }, 'default'));
    input.value = value;
    const wrong = el('p', { className: 'wrong' }), box = el('div', { className: 'knob' },
        el('label', { htmlFor: id }, el('code', {}, k.key), input),
        el('p', {}, k.about + (words ? '' : ` (${k.values})`) + (k.default ? `; default: ${k.default}` : '')), wrong);
    input.addEventListener('change', () => change(input.value));
    return { box, input, wrong, key: k.key };
}

// Keys that the plan's strategy and dialect have.
const knobs_of = (keys, plan) => keys.filter(k => k.cells.some(c => c.strategy === plan.strategy && c.dialect === plan.dialect));

// What people change first, before the rest.
const FIRST_KEYS = ['micro_batch', 'accumulation', 'recompute', 'precision', 'optimizer', 'kernels', 'shard_group', 'activation_offload',
    'parallel.tensor', 'parallel.context', 'parallel.pipeline', 'fsdp.cpu_offload', 'deepspeed.offload_optimizer.device'];

// Options of a search, as dpxplan search has them: what the form has not.
const SEARCH_OPTIONS = [
    { key: 'framework', values: 'any, torch, deepspeed, megatron', about: 'what you can run' },
    { key: 'export_to', values: 'deepspeed, accelerate, torchtitan, fsdp, megatron', about: 'only plans that this tool can run' },
    { key: 'strategy', values: 'a list of names', about: 'only these, such as ddp,fsdp' },
    { key: 'dialect', values: 'paper, torch, torch-fsdp1, deepspeed, megatron', about: 'only this dialect' },
    { key: 'recompute', values: 'all, none, selective, full, op, offload, reentrant', about: 'activation recompute' },
    { key: 'precision', values: 'bf16, fp16, fp32', about: 'number format' },
    { key: 'micro_batch', values: '1 or more', about: 'only this micro-batch' },
    { key: 'kernels', values: 'dpx, torch-eager, torch-sdpa, torch-compile, te, megatron-local',
        about: 'kernel set; default: what transformers picks for the model' },
    { key: 'optimizer', values: 'adamw, sgd, adafactor, adamw_bnb_8bit, lion_32bit, lion_8bit, adamw_torch_8bit, '
        + 'adamw_torch_4bit, muon', about: 'only plans with this optimizer' },
    { key: 'optimizer_form', values: 'foreach, fused, loop', about: 'only plans that can have this form of it' },
    { key: 'no_offload', values: 'true, false', about: 'keep states, parameters and activations in device memory' },
    { key: 'no_grid', values: 'true, false', about: 'no tensor, context or pipeline parallelism' },
    { key: 'grid', values: 'true, false', about: 'only tensor, context and pipeline parallelism, of every dialect that has them' },
    { key: 'lora_targets', values: 'names', about: 'layers that get adapters, such as q_proj,v_proj; default: all linear layers' },
    { key: 'memory', values: 'bytes, such as 80GB', about: 'bytes of a rank, in place of the GPU\'s' },
    { key: 'host_memory', values: 'bytes, such as 2TB', about: 'bytes of a node\'s host memory' },
    { key: 'headroom', values: 'a share, such as 0.05', about: 'share of memory kept free' },
    { key: 'tokens', values: 'a count, such as 15T', about: 'tokens of the whole training: days and GPU-hours' },
    { key: 'price', values: 'a number', about: 'price of a GPU-hour: what it costs; with tokens' },
];
