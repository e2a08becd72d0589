// question.js -- the question: what stands in the form, as requests of the library, a shell command and a link.
'use strict';

const USUAL = { model: 'llama-3.1-8b', gpu: 'h100', gpus: 8, node: 8, trains: 'all', rank: 16, seq: 8192, batch: 64, more: {} };
const TRAINS = { all: 'everything', lora: 'LoRA adapters', qlora: 'QLoRA: LoRA beside 4-bit weights' };

// "8xh100", or "4x8xh100" of several nodes.
function cluster_words(q) {
    return q.gpus <= q.node ? `${q.gpus}x${q.gpu}` : `${q.gpus / q.node}x${q.node}x${q.gpu}`;
}

// What the form alone can tell; '' where the library decides.
function question_wrong(q) {
    if (q.gpus > q.node && q.gpus % q.node)
        return `${q.gpus} GPUs do not fill nodes of ${q.node}: take ${q.gpus - q.gpus % q.node} or ${q.gpus + q.node - q.gpus % q.node}`;
    return '';
}

function search_request(q) {
    const r = { model: q.model, cluster: cluster_words(q), seq: q.seq, global_batch: q.batch, top: 12, ...q.more };
    if (q.trains !== 'all')
        r.lora = q.rank;
    if (q.trains === 'qlora')
        r.base_dtype = 'nf4';
    return r;
}

// A plan that most people would try first: it is answered at once, while the search goes on.
function first_plan(q) {
    const p = { dpx_plan: 1, model: q.model, cluster: cluster_words(q), strategy: 'fsdp', dialect: 'torch', precision: 'bf16', seq: q.seq,
        micro_batch: 1, accumulation: Math.max(1, Math.round(q.batch / q.gpus)), recompute: 'full' };
    if (q.trains !== 'all') {
        p.train = 'lora';
        p.lora = { rank: q.rank, target_modules: 'all-linear' };
    }
    if (q.trains === 'qlora')
        p.base_dtype = 'nf4';
    return p;
}

// The question that a plan's document answers; names of models and GPUs as `known` has them.
function question_of(plan, known) {
    const c = plan.cluster, par = plan.parallel || {}, name = plan.model._name_or_path;
    const data = c.world_size / ((par.tensor || 1) * (par.context || 1) * (par.pipeline || 1));
    return { ...USUAL, model: known.models.some(m => m.name === name) ? name : plan.model,
        gpu: known.gpus.includes(c.gpu) ? c.gpu : USUAL.gpu, gpus: c.world_size, node: c.gpus_per_node,
        trains: plan.train !== 'lora' ? 'all' : plan.base_dtype && plan.base_dtype !== 'plain' ? 'qlora' : 'lora',
            rank: plan.lora ? plan.lora.rank : USUAL.rank,
        seq: plan.seq, batch: plan.micro_batch * plan.accumulation * data };
}

// ---- the shell ----

const quoted = s => /^[\w@%+=:,./-]+$/.test(s) ? s : "'" + String(s).replace(/'/g, "'\\''") + "'";
const here = (name, doc) => `cat >${name} <<'END'\n${JSON.stringify(doc)}\nEND\n`;

function search_command(q) {
    const r = search_request(q);
    let before = '';
    if (typeof r.model === 'object') {
        before = here('config.json', r.model);
        r.model = 'config.json';
    }
    const options = Object.entries(r).filter(([, v]) => v !== false && v !== '').map(([k, v]) =>
        '--' + k.replace(/_/g, '-') + (v === true ? '' : ' ' + quoted(String(v))));
    return before + 'dpxplan search ' + options.join(' ');
}

const plan_command = plan => here('plan.json', plan) + 'dpxplan explain plan.json';

// ---- the link ----

function question_fragment(q, plan) {
    const short = Object.fromEntries(Object.entries(q).filter(([k, v]) => JSON.stringify(v) !== JSON.stringify(USUAL[k])));
    return '#' + encodeURIComponent(JSON.stringify(plan ? { q: short, plan } : { q: short }));
}

const whole = (v, most) => Number.isInteger(v) && v >= 1 && v <= most;
const sound = {
    model: v => typeof v === 'string' || is_object(v), gpu: v => typeof v === 'string', gpus: v => whole(v, 1e6),
        node: v => whole(v, 1e4),
    trains: v => Object.hasOwn(TRAINS, v), rank: v => whole(v, 65536), seq: v => whole(v, 16777216), batch: v => whole(v, 1e9),
    more: v => is_object(v) && Object.values(v).every(x => ['string', 'number', 'boolean'].includes(typeof x)),
};
const is_object = v => typeof v === 'object' && v !== null && !Array.isArray(v);

// { q, plan } of a fragment; null: there is none, or it cannot be read (`broken`).
function question_read(fragment) {
    if (fragment.length < 2)
        return { q: { ...USUAL } };
    try {
        const doc = JSON.parse(decodeURIComponent(fragment.slice(1)));
        if (!is_object(doc) || !is_object(doc.q) || (doc.plan !== undefined && !is_object(doc.plan)))
            throw new Error();
        for (const [k, v] of Object.entries(doc.q))
            if (!Object.hasOwn(sound, k) || !sound[k](v))
                throw new Error();
        return { q: { ...USUAL, ...doc.q }, plan: doc.plan };
    } catch {
        return { q: { ...USUAL }, broken: true };
    }
}

// ---- what is dropped or pasted ----

const OOM = /out of memory|OutOfMemoryError|OOM when allocating/i;

// What a text is: a 'plan', a model's 'config', an 'oom' message, statistics of memory ('stats'), or a file of a framework ('file').
function dropped_kind(text) {
    let doc = null;
    try {
        doc = JSON.parse(text);
    } catch { /* not JSON */ }
    if (is_object(doc) && 'dpx_plan' in doc)
        return { kind: 'plan', doc };
    if (is_object(doc) && ('model_type' in doc || 'architectures' in doc))
        return { kind: 'config', doc };
    if (is_object(doc) && ('allocated_bytes.all.peak' in doc || 'segments' in doc))
        return { kind: 'stats', doc };
    if (!doc && OOM.test(text))
        return { kind: 'oom' };
    return { kind: 'file' };
}

if (typeof module !== 'undefined')
    module.exports = { USUAL, first_plan, search_request, search_command, question_read, question_fragment, dropped_kind, cluster_words };
