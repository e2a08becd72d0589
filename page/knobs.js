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

// What the form asks by itself, and what is not a page's to choose.
const FORM_HAS = ['model', 'cluster', 'seq', 'global_batch', 'lora', 'base_dtype', 'top', 'db', 'threads'];

// Options of a search, as the program lists them, in the form of a knob.
const search_options = options => options.filter(o => o.command === 'search' && !FORM_HAS.includes(o.key)).map(o => ({ key: o.key,
    about: o.about, default: '', values: o.kind === 'flag' ? 'true, false' : o.kind === 'word' ? o.words.join(', ')
        : o.kind === 'words' ? 'some of ' + o.words.join(' ') : { count: '1 or more', bytes: 'bytes, such as 80GB',
            number: 'a number', length: 'tokens, such as 8k' }[o.kind] || 'a text' }));
