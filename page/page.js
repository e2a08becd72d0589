// page.js -- the page: the form asks, answers are shown as they come, what is out of date is grey.
'use strict';

// What is shown: the question, the plan's document and who chose it: 'first', 'search', 'you' or 'file'; the last answers.
const state = { q: { ...USUAL }, plan: null, by: 'first', answer: null, found: null, axis: 'seq', role: 0, rank: null, keys: [],
    options: [],
    models: [] };
let answers, finder, others, curves;    // askers: of the plan shown, of searches, of tables and files, of what-if

const $ = id => document.getElementById(id);
const HOW = { first: 'A first look, while better plans are searched', search: 'Recommended', you: 'Your choice',
    file: 'From your file' };

// What was said stays until a reader acts: an answer to an earlier question, which comes later, does not take it away.
function say(words) {
    $('said').hidden = !words;
    $('said').textContent = words || '';
}

// An answer that is out of date is grey, and stays so when its last pictures arrive.
function old(yes) {
    if (yes)
        state.showing = null;
    $('plan').classList.toggle('old', yes);
}

// A reader acts on the plan shown: it is out of date, and so is what was said.
function acted() {
    say('');
    old(true);
}

function later(f, ms) {
    let timer;
    return () => { clearTimeout(timer); timer = setTimeout(f, ms); };
}

// ---- the plan shown ----

// The plan shown, as the question now has it; null: it cannot be that.
function carried(q) {
    const p = state.plan;
    if (!p || state.by === 'first' || p.of !== plan_kind(q))
        return null;
    const plan = { ...p.document, cluster: cluster_words(q), seq: q.seq }, par = plan.parallel || {};
    const data = q.gpus / ((par.tensor || 1) * (par.context || 1) * (par.pipeline || 1)), steps = q.batch / (data * plan.micro_batch);
    if (!Number.isInteger(data) || !Number.isInteger(steps))
        return null;
    plan.accumulation = steps;
    delete plan.shard_group;
    return plan;
}
const plan_kind = q => JSON.stringify([q.model, q.trains, q.rank]);

// Asks for the plan's document and shows it.  false: the library refuses it, and `wrong` was told why.
async function explain(plan, by, wrong = say, set) {
    const a = await answers.ask('explain', { plan, ...(set ? { set } : {}), ...(state.rank === null ? {} : { rank: state.rank }),
        detail: true });
    if (!a)
        return true;
    if (!a.doc) {
        wrong(a.why);
        return false;
    }
    state.plan = { document: a.doc.plan, of: plan_kind(state.q) };
    state.by = by;
    state.answer = a.doc;
    if (a.late)
        show();             // a newer question waits: it stays grey
    else
        await show();
    state.first_ms ??= performance.now();       // since the page began to open
    if (a.late)
        old(true);
    if (curves) {
        grey('whatif', true);       // at once, not when its turn comes
        curve_soon();
    }
    return true;
}

// Words at once, pictures as they are drawn: grey until all are there.
async function show() {
    old(true);
    const turn = state.showing = {};
    const d = state.answer, step = d.step;
    const of_rank = step && state.rank !== null ? step.roles.findIndex(r => r.rank === state.rank) : -1;
    state.role = of_rank >= 0 ? of_rank : step ? Math.min(state.role, step.roles.length - 1) : 0;
    show_verdict(d, HOW[state.by]);
    show_whynot(d, (plan, words) => choose(plan, words), more_gpus(d), state.found, step_of);
    roles(step);
    const pictures = [show_memory(d, step, state.role), show_streams(d, step, state.role)];
    if (state.found)
        pictures.push(show_plans(state.found, d.label, p => choose(p.plan)));
    pictures.push(show_comm(d), show_time(d));
    if (state.cells)
        show_change(d);
    show_take(d);
    show_sources();
    link();
    await Promise.all(pictures);
    if (state.showing === turn)
        old(false);
}

// What the GPU's figures rest on.
function show_sources() {
    const gpu = state.sources?.find(g => g.name === state.answer?.plan.cluster.gpu);
    $('version').textContent = `dpx ${state.version ?? ''}. ${gpu ? `Figures of ${gpu.title}: ${gpu.source}.` : ''}`;
}

function choose(plan, words) {
    acted();
    state.rank = null;
    going(words ? `changing the plan: ${words}` : 'looking inside');
    explain(plan, 'you').then(() => going(''));
}

// Another rank than the fullest of its stage: null gives that one.
function ask_rank(rank) {
    state.rank = rank;
    acted();
    explain(state.plan.document, state.by);
}

function rank_input(step) {
    const last = state.answer.plan.cluster.world_size - 1, input = el('input', { type: 'number', min: 0, max: last,
        value: step.roles[state.role].rank, ariaLabel: `rank, 0 to ${last}` });
    input.addEventListener('change', () => {
        const v = Number(input.value);
        if (Number.isInteger(v) && v >= 0 && v <= last)
            ask_rank(v);
        else
            input.value = step.roles[state.role].rank;
    });
    return el('label', {}, 'rank ', input, ` of ${last + 1} `);
}

// The stages of a pipeline, as buttons; any rank, as a number.
function roles(step) {
    for (const id of ['memory', 'streams']) {
        const pick = section(id).querySelector('.pick');
        pick.replaceChildren(...(step && step.roles.length > 1 ? step.roles.map((r, i) => {
            const b = el('button', { type: 'button' }, r.name);
            b.setAttribute('aria-pressed', i === state.role);
            b.addEventListener('click', () => { state.role = i; state.rank === null ? show() : ask_rank(null); });
            return b;
        }) : []));
        if (step && state.answer.plan.cluster.world_size > 1)
            pick.append(rank_input(step));
        if (id === 'streams')
            for (const [words, k] of [['+', 1 / 2], ['−', 2], ['whole step', 1e9]]) {
                const b = el('button', { type: 'button', ariaLabel: 'zoom ' + words }, words);
                b.addEventListener('click', () => section('streams').zoom.zoom?.(k));
                pick.append(b);
            }
    }
}

// Seconds of a step of a plan; 0: it has none.
const steps_known = new Map();
function step_of(plan) {
    const key = JSON.stringify(plan);
    if (steps_known.size > 100)
        steps_known.clear();
    if (!steps_known.has(key) && others)
        steps_known.set(key, others.ask('eval', { plan }, { always: true }).then(a => a?.doc?.time?.step_s ?? 0));
    return steps_known.get(key) ?? 0;
}

// ---- more GPUs, in "why not" ----

function more_gpus(d) {
    const p = el('p', {}, 'More GPUs: ');
    if (d.fits || !others)
        return null;
    others.ask('sweep', { plan: d.plan, over: { nodes: [2, 4, 8].map(k => k * d.plan.cluster.nodes) } }, { always: true }).then(a => {
        const hold = a && a.doc && a.doc.points.find(x => x.fits);
        if (!hold)
            return p.append('none of 2, 4 or 8 times as many hold this plan.');
        const b = el('button', { type: 'button', className: 'strong' }, `take ${hold.gpus}`);
        b.addEventListener('click', () => { state.q = { ...state.q, gpus: hold.gpus }; put_form(); ask(); });
        const bytes = hold.taken_bytes || hold.memory_bytes;
        p.append(b, ` ${bytes_words(bytes)} of ${bytes_words(hold.available_bytes)}${bytes > hold.available_bytes ? ', tight' : ''}`);
    });
    return p;
}

// ---- the question ----

const search_soon = later(search, 350);
const look_soon = later(look, 40);

// The question changed: pictures first, the search behind them.
function ask() {
    const wrong = question_wrong(state.q);
    old(true);
    if (finder.busy)
        finder.stop();
    stopped();
    $('fewest').hidden = true;
    state.found = null;
    ['plans', 'few'].forEach(id => grey(id, true));
    say(wrong);
    if (wrong)
        return;
    link();
    look_soon();
    search_soon();
}

async function look() {
    const plan = carried(state.q), by = state.by;
    if (plan && await explain(plan, by, () => {}))
        return;
    await explain(first_plan(state.q), 'first');
}

function going(words) { $('going-words').textContent = words; }

function stopped() {
    $('bar').hidden = $('stop').hidden = true;
}

async function search() {
    const asked = JSON.stringify(state.q);
    $('bar').removeAttribute('value');
    $('bar').hidden = $('stop').hidden = false;
    going('searching');
    const a = await finder.ask('search', search_request(state.q), { on_progress(done, total) {
        if (total > 0)
            $('bar').value = Math.min(1, done / total);
        going(`searching: ${done} of ${total} plans`);
    } });
    if (!a || asked !== JSON.stringify(state.q))
        return;
    stopped();
    if (!a.doc) {
        going('');
        return say(a.why);
    }
    state.found = a.doc;
    const n = a.doc;
    going(`${n.searched} plans considered, ${n.evaluated} evaluated, ${n.fitting} fit, ${seconds_words(n.search_s)}`);
    const best = n.plans[0] || n.nearest_that_does_not_fit;
    if (best && (state.by === 'first' || state.by === 'search'))
        await explain(best.plan, 'search');
    else if (state.answer && !state.answer.fits)
        show();
    else if (state.answer)
        show_plans(n, state.answer.label, p => choose(p.plan));
    fewest();
    few();
}

// As `dpxplan fit` has it.
async function fewest() {
    const q = state.q, a = await finder.ask('fit', { model: q.model, gpu: [q.gpu], train: q.trains, seq: q.seq, batch: q.batch,
        ...(q.trains === 'all' ? {} : { lora: q.rank }) }, { always: true });
    if (a && a.doc && q === state.q)
        show_fewest(a.doc, q, gpus => { state.q = { ...state.q, gpus }; put_form(); ask(); });
}

async function few() {
    const q = state.q, r = { model: q.model, cluster: cluster_words(q), seq: q.seq, recompute: 'full' };
    if (q.trains !== 'all')
        r.lora = q.rank;
    if (q.trains === 'qlora')
        r.base_dtype = 'nf4';
    section('few').hidden = false;
    grey('few', false);
    say_in('few', 'computing');
    section('few').querySelector('.table').replaceChildren();
    const a = await finder.ask('limits', r);
    if (a && a.doc)
        show_few(a.doc, q);
    else if (a)
        say_in('few', a.why);
}

// ---- what if ----

const AXES = {
    seq: { key: 'seq', about: 'other lengths of a sample', label: v => v, now: d => d.plan.seq,
        values: d => [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8].map(k => Math.round(d.plan.seq * k)).filter(v => v >= 16) },
    gpus: { key: 'cluster', about: 'other numbers of GPUs, each with the same share of the batch',
        label: v => v.split('x').slice(0, -1).reduce((a, n) => a * n, 1) + ' GPUs', now: () => cluster_words(state.q),
        values: () => [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8].map(k => state.q.gpus * k)
            .filter(n => Number.isInteger(n) && n >= 1 && (n <= state.q.node || n % state.q.node === 0))
            .map(n => cluster_words({ ...state.q, gpus: n })) },
    micro_batch: { key: 'micro_batch', about: 'other numbers of samples at once', label: v => v, now: d => d.plan.micro_batch,
        values: () => [1, 2, 4, 8, 16, 32] },
    global_batch: { key: 'global_batch', about: 'other numbers of samples a step', label: v => v, now: () => state.q.batch,
        values: () => [1 / 4, 1 / 2, 1, 2, 4].map(k => state.q.batch * k).filter(Number.isInteger) },
    network: { key: 'network', about: 'another network between nodes, in Gbit/s of a node', label: v => v,
        now: d => Math.round(8 * (d.plan.cluster.inter?.gb_per_s ?? 0)),
        values: () => [100, 200, 400, 800, 1600, 3200] },
    gpu: { key: 'gpu', about: 'another type of GPU', label: v => v, now: () => state.q.gpu,
        values: () => [...new Set([state.q.gpu, 'a100-40gb', 'a100-80gb', 'h100', 'h200', 'b200', 'mi300x'])]
        .filter(n => state.gpus.includes(n)) },
};

const curve_soon = later(curve, 250);

async function curve() {
    if (!state.answer)
        return;
    const d = state.answer, axis = AXES[state.axis], pick = section('whatif').querySelector('.pick');
    pick.replaceChildren(...Object.keys(AXES).map(k => {
        const b = el('button', { type: 'button' }, { seq: 'sample length', gpus: 'GPUs', micro_batch: 'samples at once',
            global_batch: 'samples a step', network: 'network', gpu: 'GPU type' }[k]);
        b.setAttribute('aria-pressed', k === state.axis);
        b.addEventListener('click', () => { state.axis = k; curve(); });
        return b;
    }));
    grey('whatif', true);
    const a = await curves.ask('sweep', { plan: d.plan, over: { [axis.key]: axis.values(d) } });
    if (!a || a.late)
        return;
    if (a.doc)
        show_curve(axis, a.doc, axis.now(d));
    else {
        grey('whatif', false);
        undrawn(box_of('whatif'));
        say_in('whatif', a.why);
    }
}
// ---- change this plan ----

function show_change(d) {
    const box = box_of('change'), mine = knobs_of(state.keys, d.plan), plan = d.plan;
    const opened = box.querySelector('details')?.open, focused = box.contains(document.activeElement)
        && document.activeElement.closest('.knob')?.querySelector('code').textContent;
    const wrong_at = k => words => { k.wrong.textContent = words; k.input.setAttribute('aria-invalid', 'true'); old(false); };
    const of = k => {
        const v = key_value(plan, k.key), made = knob(k, shown_value(v), text => {
            acted();
            explain(plan, 'you', wrong_at(made), { [k.key]: text });
        });
        return made;
    };
    const cells = el('select', { ariaLabel: 'strategy and framework' },
        ...state.cells.map(c => el('option', { value: c.strategy + ' ' + c.dialect }, `${c.strategy}, ${c.dialect}`)));
    cells.value = plan.strategy + ' ' + plan.dialect;
    const cell_wrong = el('p', { className: 'wrong' });
    cells.addEventListener('change', () => {
        const [strategy, dialect] = cells.value.split(' '), keep = ['dpx_plan', 'model', 'cluster', 'seq', 'micro_batch',
            'accumulation', 'precision', 'recompute', 'train', 'lora', 'base_dtype'];
        acted();
        explain({ ...Object.fromEntries(Object.entries(plan).filter(([k, v]) => keep.includes(k) && !(k === 'train' && v === 'all')
            && !(k === 'base_dtype' && v === 'plain'))), strategy, dialect }, 'you',
            words => { cell_wrong.textContent = words; old(false); });
    });
    const first = mine.filter(k => FIRST_KEYS.includes(k.key)), rest = mine.filter(k => !FIRST_KEYS.includes(k.key)),
        find = el('input', { type: 'search', placeholder: 'find a key', ariaLabel: 'find a key' });
    const more = el('div', { className: 'knobs' });
    const fill = () => more.replaceChildren(...rest.filter(k => (k.key + ' ' + k.about).toLowerCase()
        .includes(find.value.toLowerCase())).map(k => of(k).box));
    const all = el('details', {}, el('summary', {},
        `All other keys of ${plan.strategy} in ${plan.dialect}: ${rest.length}, each with its sentence`), find, more);
    find.addEventListener('input', fill);
    all.addEventListener('toggle', () => { if (all.open && !more.childElementCount) fill(); });
    all.open = opened || false;
    say_in('change', 'Every change is answered at once; what cannot be combined says why.');
    box.replaceChildren(el('p', {}, el('label', {}, 'Strategy, as a framework has it ', cells), cell_wrong),
        el('div', { className: 'knobs' }, ...first.map(k => of(k).box)), all);
    if (all.open)
        fill();
    [...box.querySelectorAll('.knob')].find(k => k.querySelector('code').textContent === focused)?.querySelector('input,select')
        .focus({ preventScroll: true });
}

// ---- taken away ----

// What a link begins with: this file; the address of dpxplan serve holds a secret and ends with it.
const page_name = () => typeof Served === 'undefined' ? location.href.split('#')[0] : 'dpx.html';

function show_take(d) {
    const box = box_of('take'), out = el('pre', { className: 'command', hidden: true, tabIndex: 0 }), b = (words, f) => {
        const e = el('button', { type: 'button' }, words);
        e.addEventListener('click', f);
        return e;
    };
    const keep = el('p', { className: 'tools', hidden: true },
        b('copy', () => navigator.clipboard && navigator.clipboard.writeText(out.textContent)),
        b('save', () => save(out.name, out.textContent, out.type)));
    const show_text = (words, name, type = 'text/plain') =>
        { out.hidden = keep.hidden = false; out.textContent = words; out.name = name; out.type = type; };
    const targets = ['deepspeed', 'accelerate', 'torchtitan', 'fsdp', 'megatron'].map(to => b(to, async () => {
        const a = await others.ask('export', { plan: d.plan, to }, { always: true });
        if (a)
            show_text(a.doc ? a.doc.text + (a.doc.notes || []).map(n => '\n# ' + n).join('') : a.why,
                to + (to === 'deepspeed' ? '.json' : to === 'fsdp' ? '.py' : '.txt'));
    }));
    const row = (words, ...buttons) => [el('span', {}, words), el('span', {}, ...buttons)];
    box.replaceChildren(el('div', { className: 'gives' },
        ...row('As JSON', b('plan.json', () => save('plan.json', JSON.stringify(d.plan, null, 2) + '\n', 'application/json')),
            b('whole answer as JSON', () => save('answer.json', JSON.stringify(d, null, 1) + '\n', 'application/json'))),
        ...row('In a shell', b('the search in a shell', () => show_text(search_command(state.q), 'search.sh')),
            b('this plan in a shell', () => show_text(plan_command(d.plan), 'plan.sh'))),
        ...row('As a link', b('link to the question', () => show_text(page_name() + question_fragment(state.q), 'link.txt')),
            b('link to this plan', () => show_text(page_name() + question_fragment(state.q, d.plan), 'link.txt'))),
        ...row('As the config of', ...targets)), out, keep);
}

function link() {
    history.replaceState(null, '', question_fragment(state.q, state.by === 'you' || state.by === 'file' ? state.plan.document
        : undefined));
}

// ---- files ----

const safe_name = name => (name || 'pasted').replace(/[^\w.-]/g, '_').slice(-80) || 'pasted';

async function bring(text, name) {
    const { kind, doc } = dropped_kind(text);
    acted();
    $('imported').hidden = true;
    if (kind === 'config') {
        state.q = { ...state.q, model: doc };
        state.by = 'first';
        put_form();
        return ask();
    }
    if (kind === 'plan')
        return void (await explain(doc, 'file') ? asked_by_file() : old(false));
    if (kind === 'oom' || kind === 'stats') {
        const a = await others.ask('explain', { plan: state.answer.plan, ...(kind === 'oom' ? { oom_text: text } : { oom: doc }) },
            { always: true });
        old(false);
        return show_imported(a.doc ? a.doc.text : a.why);
    }
    await import_file(text, safe_name(name));
}

// The file's own model and length where it names them, else the form's: which of it is the form's is said.
async function import_file(text, name) {
    const q = state.q, base = { file: name, text, cluster: cluster_words(q) }, tried = [];
    let a = null, mine = null;
    for (mine of [{}, { seq: q.seq }, { model: q.model }, { model: q.model, seq: q.seq }]) {
        a = await others.ask('import', { ...base, ...mine }, { always: true });
        if (!a)
            return;
        if (a.doc)
            break;
        tried.push(a.why);
    }
    if (!a.doc) {
        const last = tried[tried.length - 1];
        old(false);
        return say(tried[0] + (last === tried[0] ? '' : `\nWith what the form has: ${last}`));
    }
    if (await explain(a.doc.plan, 'file')) {
        asked_by_file();
        show_imported([`${name}: ${a.doc.label}`, `From the form: ${base.cluster}${mine.model === undefined ? '' : ', '
            + (typeof q.model === 'string' ? q.model : 'your config.json')}${mine.seq === undefined ? '' : `, ${q.seq} tokens a sample`}`,
            ...(a.doc.notes || [])].join('\n'));
    }
    old(false);
}

// The form says what the file's plan is; what else could be done is searched beside it.
function asked_by_file() {
    state.q = question_of(state.answer.plan, state);
    state.plan.of = plan_kind(state.q);
    put_form();
    link();
    if (finder.busy)
        finder.stop();
    search();
}

function show_imported(words) {
    $('imported').hidden = false;
    $('imported').textContent = words;
}

async function bring_file(file) {
    if (!file)
        return;
    if (file.size > 16 << 20)
        return say(`${file.name}: ${bytes_words(file.size)} is more than a config has: 16 MiB`);
    bring(await file.text(), file.name);
}

// ---- the form ----

const SLIDES = { gpus: 'gpus', seq: 'seq', batch: 'batch' };

function put_form() {
    const q = state.q, own = typeof q.model === 'object';
    $('model').replaceChildren(...(own ? [el('option', { value: '' },
        `your config.json (${q.model.model_type || 'no model_type'})`)] : []),
        ...state.models.map(m => el('option', { value: m.name }, `${m.name}: ${m.about}`)));
    $('model').value = own ? '' : q.model;
    if (!own && $('model').value !== q.model) {
        $('model').prepend(el('option', { value: q.model }, q.model));
        $('model').value = q.model;
    }
    $('gpu').value = q.gpu;
    for (const k of ['gpus', 'node', 'seq', 'batch'])
        $(k).value = q[k];
    for (const k in SLIDES)
        $(k + '-slide').value = Math.log2(q[k]);
    $('trains').value = q.trains;
}

function set_question(change) {
    const gpus = state.q.gpus;
    state.q = { ...state.q, ...change };
    if (state.q.gpus !== gpus && state.q.gpus > state.q.node && state.q.gpus % state.q.node === 0)
        state.q.node = Math.min(state.q.node, state.q.gpus);
    if (state.by === 'you' || state.by === 'file')
        state.by = 'search';            // a new question: its best plan is recommended again
    state.role = 0;
    state.rank = null;
    ask();
}

function form() {
    const number = (id, most) => $(id).addEventListener('input', () => {
        const v = Number($(id).value);
        if (!whole(v, most))
            return;
        if ($(id + '-slide'))
            $(id + '-slide').value = Math.log2(v);
        set_question({ [id]: v });
    });
    number('gpus', 65536);
    number('node', 72);
    number('seq', 16777216);
    number('batch', 1048576);
    for (const k in SLIDES)
        $(k + '-slide').addEventListener('input', () => { $(k).value = 2 ** $(k
            + '-slide').value; set_question({ [k]: 2 ** $(k + '-slide').value }); });
    $('model').addEventListener('change', () => { if ($('model').value) set_question({ model: $('model').value }); });
    $('gpu').addEventListener('change', () => set_question({ gpu: $('gpu').value }));
    $('trains').addEventListener('change', () => set_question({ trains: $('trains').value }));
    $('question').addEventListener('submit', e => e.preventDefault());
    $('stop').addEventListener('click', () => { finder.stop(); stopped(); going('stopped: what is shown was computed before'); });
    $('read').addEventListener('click', () => { if ($('pasted').value.trim()) bring($('pasted').value, $('file-name').value); });
    $('file').addEventListener('change', () => bring_file($('file').files[0]));
    let inside = 0;
    addEventListener('dragenter', e => { e.preventDefault(); inside++; $('drop').hidden = false; });
    addEventListener('dragover', e => e.preventDefault());
    addEventListener('dragleave', () => { if (--inside <= 0) $('drop').hidden = true; });
    addEventListener('drop', e => { e.preventDefault(); inside = 0; $('drop').hidden = true; bring_file(e.dataTransfer.files[0]); });
    const rank = knob({ key: 'LoRA rank', values: '1 to 65536', about: 'of adapters, where they train' }, String(state.q.rank),
        v => { if (whole(Number(v), 65536)) set_question({ rank: Number(v) }); });
    $('more-options').replaceChildren(rank.box, ...search_options(state.options).map(o =>
        knob({ ...o, default: '' }, shown_value(state.q.more[o.key]), v => {
        const more = { ...state.q.more };
        delete more[o.key];
        if (v !== '')
            more[o.key] = v === 'true' ? true : v === 'false' ? false : v;
        set_question({ more });
    }).box));
}

function tabs() {
    for (const name of ['plan', 'learn'])
        $('tab-' + name).addEventListener('click', () => {
            for (const n of ['plan', 'learn']) {
                $(n).hidden = n !== name;
                $('tab-' + n).setAttribute('aria-selected', n === name);
                $('tab-' + n).tabIndex = n === name ? 0 : -1;
            }
            if (name === 'learn')
                learn_open($('learn'));
            else if (state.answer)
                show();             // the page may be of another width by now
        });
    document.querySelector('nav').addEventListener('keydown', e => {
        if (e.key !== 'ArrowLeft' && e.key !== 'ArrowRight')
            return;
        const other = $($('plan').hidden ? 'tab-plan' : 'tab-learn');
        other.click();
        other.focus();
    });
}

async function list(what) {
    const a = await others.ask('list', { what }, { always: true });
    return a.doc[what];
}

// What is shown before anything is touched: the link's plan, the link's question, or the usual one.  Why the link's could not be shown.
async function first_look(read) {
    let why = read.broken ? 'The link cannot be read: this is the start page.' : '';
    const refused = words => { why ||= `The link cannot be answered: ${words}`; };
    if (read.plan && await explain(read.plan, 'file', refused))
        return '';
    if (!await explain(first_plan(state.q), 'first', refused)) {
        state.q = { ...USUAL };
        await explain(first_plan(state.q), 'first');
    }
    return why;
}

async function open() {
    const read = question_read(location.hash);
    state.q = read.q;
    await Library.load();
    answers = new Asker();
    const looked = first_look(read);
    const opened = await answers.opened;
    if (opened.ended)
        throw new Error(opened.answer);
    [others, finder, curves] = [new Asker(), new Asker(), new Asker()];
    const [models, gpus, strategies, keys, options] = await Promise.all(['models', 'gpus', 'strategies', 'keys', 'options'].map(list));
    Object.assign(state, { models, cells: strategies, keys, options, gpus: gpus.map(g => g.name), sources: gpus });
    $('gpu').replaceChildren(...gpus.map(g => el('option', { value: g.name, title: g.source },
        `${g.title}: ${bytes_words(g.memory_bytes)}`)));
    $('trains').replaceChildren(...Object.entries(TRAINS).map(([k, v]) => el('option', { value: k }, v)));
    put_form();
    form();
    tabs();
    const why = await looked;
    if (why) {
        put_form();
        say(why);
    }
    if (read.plan && state.by === 'file') {         // the form says what the link's plan is
        state.q = { ...question_of(state.answer.plan, state), more: read.q.more };
        state.plan.of = plan_kind(state.q);
        put_form();
    }
    if (state.answer)
        show();
    curve_soon();
    state.version = (await others.opened).version;
    show_sources();
    search();
    if (typeof Served !== 'undefined') {
        const a = await others.ask('runs', {}, { always: true });
        if (a && a.doc)
            Served.show_runs(a.doc, p => choose(p));
    }
    let width = innerWidth;
    addEventListener('resize', later(() => {
        if (state.answer && width !== innerWidth && !$('plan').hidden)
            show();
        width = innerWidth;
    }, 150));
}

open().catch(e => { say('The page does not start: ' + e.message); going(''); });
