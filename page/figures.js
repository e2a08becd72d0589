// figures.js -- an answer of the library as figures: what is in the document goes to chart.js, nothing is computed twice.
'use strict';

const section = id => document.getElementById(id);
const box_of = id => section(id).querySelector('.box');
// Grey until what is asked now is there.
const grey = (id, yes) => section(id).classList.toggle('old', yes);
const say_in = (id, words) => { section(id).querySelector('.words').textContent = words; };

// "SVG", "CSV" below a figure; rows() gives what the CSV has.
function tools(id, rows) {
    const at = section(id).querySelector('.tools');
    if (!at || at.childElementCount)
        return void (at && (at.rows = rows));
    at.rows = rows;
    const csv = el('button', { type: 'button' }, 'CSV');
    csv.addEventListener('click', () => save(`dpx-${id}.csv`, csv_text(at.rows()), 'text/csv'));
    at.append(csv);
    if (!section(id).querySelector('.box'))
        return;
    const picture = el('button', { type: 'button' }, 'SVG');
    picture.addEventListener('click', () => {
        const s = box_of(id).querySelector('svg');
        if (s)
            svg_file(s).then(file => save(`dpx-${id}.svg`, file, 'image/svg+xml'));
    });
    at.prepend(picture);
}

function save(name, text_of, type) {
    const a = el('a', { href: URL.createObjectURL(new Blob([text_of], { type })), download: name });
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

// A cell that a spreadsheet would take for a formula is given a quote.
const csv_cell = v => {
    const s = typeof v === 'string' && /^[=+\-@\t\r]/.test(v) ? "'" + v : String(v ?? '');
    return /[",\n\r]/.test(s) ? '"' + s.replace(/"/g, '""') + '"' : s;
};
const csv_text = rows => rows.map(r => r.map(csv_cell).join(',') + '\r\n').join('');

function table(head, rows, numeric = []) {
    const cell = (kind, v, i) => el(kind, { className: numeric.includes(i) ? 'n' : '' }, v);
    return el('table', {}, el('thead', {}, el('tr', {}, ...head.map((h, i) => cell('th', h, i)))),
        el('tbody', {}, ...rows.map(r => el('tr', { className: r.className || '' }, ...r.cells.map((v, i) => cell('td', v, i))))));
}

const interval_of = t => t.low_s ? interval_words(t.low_s, t.step_s, t.high_s) : '';
// Of a sample that has no tokens, an image's, samples.
const rate_words = t => t.tokens_per_s ? `${count_words(t.tokens_per_s)} tokens/s` : `${count_words(t.samples_per_s)} samples/s`;
const BASIS = {
    datasheet: 'times rest on datasheets: nobody measured these kernels for it',
    published: 'times rest on datasheets and on published measurements; no machine of yours was measured',
    measured: 'times were measured on a GPU of this type',
};

// A plan in words; its label where the answer has none.
const plan_said = p => p.words || p.what || p.label;

// ---- the verdict ----

// A line of `most`: spans [from, to, class] and marks [at, 'mark'] on it, for the eye alone.
function gauge(most, spans) {
    const of = v => `${(100 * Math.min(1, Math.max(0, v / most))).toFixed(2)}%`;
    return el('span', { className: 'gauge', ariaHidden: 'true' }, ...spans.map(([from, to, kind]) => {
        const i = el('i', { className: kind });
        i.style.left = of(from);
        if (kind !== 'mark')
            i.style.width = of(to - from);
        return i;
    }));
}

const tile = (name, value, picture, ...more) => el('div', { className: 'tile' }, el('span', { className: 'name' }, name),
    el('b', {}, value), picture, ...more.filter(Boolean).map(words => el('span', { className: 'more' }, words)));

// All that is there at the peak, with what no entry allocates: dpxplan's "allocated".
const allocated_of = m => Object.values(m.at_peak).reduce((sum, bytes) => sum + bytes, m.overhead_bytes);

function memory_tile(m, fits) {
    const reserves = fits && m.reserved_peak_bytes, allocated = allocated_of(m), bytes = fits ? m.taken_bytes : m.peak_bytes,
        most = 1.02 * Math.max(bytes, m.available_bytes);
    return tile('Memory of a GPU', bytes_words(bytes),
        gauge(most, [[0, bytes, 'faint'], [0, reserves ? allocated : bytes, ''],
            [m.available_bytes, m.available_bytes, 'mark']]),
        `${!fits ? 'needed ' : reserves ? 'reserved ' : ''}of ${bytes_words(m.available_bytes)} usable`,
        reserves ? `${bytes_words(allocated)} of it allocated` : '');
}

function time_tiles(t, fits) {
    return [tile(fits ? 'A step' : 'A step, if it fitted', seconds_words(t.step_s),
        gauge(1.15 * t.high_s, [[t.low_s, t.high_s, 'faint'], [t.step_s, t.step_s, 'mark']]),
        `nine of ten runs: ${interval_of(t)}`),
        tile('Throughput', rate_words(t), gauge(1, [[0, t.mfu, '']]), t.mfu === null ? '' : `MFU ${share_words(t.mfu)}`),
        tile('Waiting for the network', share_words(t.exposed_comm_s / t.step_s), gauge(1, [[0, t.exposed_comm_s / t.step_s, '']]),
            'exposed communication')];
}

function show_verdict(d, how) {
    const v = section('verdict'), m = d.memory, t = d.time, tight = m.verdict === 'tight',
        word = !d.fits ? 'It does not fit' : tight ? 'It fits, tightly' : 'It fits', p = words => el('p', { className: 'note' }, words);
    v.className = !d.fits ? 'no' : tight ? 'tight' : '';
    v.replaceChildren(el('p', { className: 'word' }, word), el('p', { className: 'how' }, how),
        el('p', { className: 'plan', title: d.label }, plan_said(d)));
    if (d.why_not)
        v.append(el('p', { className: 'loud' }, d.why_not.replace(/^./, c => c.toUpperCase()) + '.'));
    v.append(el('div', { className: 'tiles' }, memory_tile(m, d.fits), ...(t ? time_tiles(t, d.fits) : [])));
    if (tight)
        v.append(p(m.taken_bytes > m.available_bytes
            ? 'Tight: less than 5 % of the card stays free.'
            : "Tight: PyTorch's allocator reserves all there is and empties its cache, which takes time."));
    if (t)
        v.append(p(`Basis ${t.basis}: ${BASIS[t.basis] || ''}.`));
    v.append(...(d.notes || []).map(p));
}

// ---- memory ----

// The largest of what lives at a peak, as lines.
const live_words = peak => peak.live.slice(0, 6).map(l => `${bytes_words(l.bytes)} ${l.what}${l.of ? ` of ${l.of}` : ''}`
    + (l.count > 1 ? `, ${l.count} times ${bytes_words(l.each_bytes)}` : '')).concat(peak.live.length > 6
    ? [`and ${peak.live.length - 6} smaller: in the table below`] : []);

async function show_memory(d, step, role) {
    const m = d.memory, r = step && step.roles[role], peak = r ? r.peak : d.peaks[0], fullest = !r || r.rank === m.rank;
    const elsewhere = m.phase === 'steady' ? '' : ` The picture shows a later, steady step; the peak is in the ${m.phase} one.`;
    say_in('memory', fullest ? d.advice.why.split('\n')[0] + elsewhere
        : `Rank ${r.rank}: ${bytes_words(r.peak.bytes)} at the most, at ${r.peak.at} of the ${r.peak.step} step, NCCL's buffers aside; `
            + `the fullest rank, ${m.rank}, has ${bytes_words(d.peaks[0].bytes)}.`);
    let picture;
    const lines = [{ words: 'usable', bytes: m.available_bytes, look: 'limit' }];
    if (m.reserved_peak_bytes && fullest)
        lines.push({ words: 'reserved', bytes: m.taken_bytes, look: 'dotted' });
    if (m.phase !== 'steady' && fullest)
        lines.push({ words: `peak of the ${m.phase} step`, bytes: allocated_of(m), look: 'thin' });
    if (step) {
        // What no entry allocates, NCCL's buffers and workspaces, lies below the rest all the time; it is known of the fullest rank.
        const mem = r.memory, told = i => r.words[mem.words[i]], always = fullest ? m.overhead_bytes : 0,
            is_always = k => step.categories[k] === 'overhead',
            order = step.categories.map((c, k) => k).sort((a, b) => is_always(b) - is_always(a)),
            categories = order.map(k => step.categories[k]),
            bytes = mem.bytes.map(b => order.map(k => b[k] + (is_always(k) ? always : 0)));
        picture = chart_memory(box_of('memory'), { categories, colours: categories.map(c => d.colours.category[c]), bytes,
            t: mem.t_ns.map(t => t / 1e9), words: mem.words.map((_, i) => told(i)), lines,
            live: peak.step === 'steady' ? live_words(peak) : [], end_s: r.step_s });
        tools('memory', () => [['seconds', 'entry', ...categories.map(c => c + ' bytes')],
            ...mem.t_ns.map((t, i) => [t / 1e9, told(i), ...bytes[i]])]);
    } else
        undrawn(box_of('memory'), 'This step has too many entries to draw.');
    section('memory').querySelector('.live .table').replaceChildren(table(['what', 'category', 'count', 'each', 'in all'],
        peak.live.map(l => ({ cells: [l.of ? `${l.what} of ${l.of}` : l.what, l.category, String(l.count),
            bytes_words(l.each_bytes), bytes_words(l.bytes)] })), [2, 3, 4]));
    await picture;
}

// ---- the step ----

// What of [s, e] no interval of `busy` (in order) covers.
function bare_of(busy, s, e) {
    const out = [];
    for (const b of busy) {
        if (b.e <= s)
            continue;
        if (b.s >= e)
            break;
        if (b.s > s)
            out.push([s, b.s]);
        s = Math.max(s, b.e);
    }
    if (s < e)
        out.push([s, e]);
    return out;
}

function rows_of(step, role) {
    const r = step.roles[role], streams = new Map();
    for (const [st, s, e, w, k] of r.entries) {
        const name = r.streams[st];
        if (!streams.has(name))
            streams.set(name, []);
        streams.get(name).push({ s: s / 1e9, e: e / 1e9, words: r.words[w], kind: step.kinds[k] });
    }
    for (const entries of streams.values())
        entries.sort((a, b) => a.s - b.s);
    const compute = streams.get('compute') || [], busy = compute.filter(e => e.kind !== 'collective' && e.kind !== 'message');
    const talks = [...streams.values()].flat().filter(e => e.kind === 'collective' || e.kind === 'message')
        .sort((a, b) => a.s - b.s), exposed = [];
    for (const t of talks)
        for (const [s, e] of bare_of(busy, t.s, t.e)) {
            const last = exposed[exposed.length - 1];
            if (last && s <= last[1])
                last[1] = Math.max(last[1], e);
            else
                exposed.push([s, e]);
        }
    const rows = [{ name: 'compute', main: true, entries: compute, exposed }];
    for (const [name, entries] of streams)
        if (name !== 'compute')
            rows.push({ name, entries });
    return rows;
}

const view = { from: 0, to: 0, of: null };

async function show_streams(d, step, role) {
    if (!step)
        return undrawn(box_of('streams'), 'This step has too many entries to draw.');
    const end_s = Math.max(...step.roles.map(r => r.step_s)), rows = step.roles.length > 1
        ? [...step.roles.map((r, i) => ({ ...rows_of(step, i)[0], name: r.name })), ...rows_of(step, role).slice(1)]
            : rows_of(step, role);
    if (view.of !== end_s)
        Object.assign(view, { from: 0, to: end_s, of: end_s });
    const data = { rows, colours: d.colours.work, end_s, view };
    say_in('streams', `${seconds_words(d.time.step_s)}: compute ${seconds_words(d.time.compute_s)}, exposed communication `
        + `${seconds_words(d.time.exposed_comm_s)}, `
        + `optimizer ${seconds_words(d.time.optimizer_s)}${d.time.bubble_s ? `, bubble ${seconds_words(d.time.bubble_s)}` : ''}. `
        + `Hatched: communication with no compute beside it.`
        + (step.resolution_s ? ` Entries nearer than ${seconds_words(step.resolution_s)} are drawn as one.` : '')
            + ' Wheel with Ctrl, + and - zoom; arrows and dragging move.');
    section('streams').zoom = data;
    tools('streams', () => [['stream', 'begin s', 'end s', 'kind', 'entry'],
        ...rows.flatMap(r => r.entries.map(e => [r.name, e.s, e.e, e.kind, e.words]))]);
    await chart_streams(box_of('streams'), data);
}

// ---- bytes and time ----

async function show_comm(d) {
    const ops = [...d.comm.ops].sort((a, b) => b.bytes - a.bytes);
    say_in('comm', `A rank sends ${bytes_words(d.comm.sent_bytes_per_rank)} in a step. Bars: full buffers of all calls, as `
        + `nccl-tests counts them.`);
    tools('comm', () => [['op', 'group', 'dtype', 'calls', 'bytes'], ...ops.map(o => [o.op, o.group, o.dtype, o.count, o.bytes])]);
    await chart_bars(box_of('comm'), ops.map(o => ({ name: `${o.op} ${o.group} ${o.dtype}`, value: o.bytes,
        words: `${bytes_words(o.bytes)}, ${o.count} calls`, colour: d.colours.op[o.op] ?? 9 })), 'Bytes by collective');
}

async function show_time(d) {
    const t = d.time, c = d.colours.phase, parts = [['compute', t.compute_s, c.compute], ['optimizer', t.optimizer_s, c.optimizer],
        ['bubble', t.bubble_s, c.bubble],
        ['idle', t.idle_s, c.idle], ['wait for the slowest rank', t.slowest_rank_s, 7],
        ['waits for memory', t.retry_s, 11],
        ...Object.entries(t.exposed_by || {}).map(([name, s]) => [`exposed ${name}`, s, c['exposed communication']])].filter(p => p[1] > 0)
        .sort((a, b) => b[1] - a[1]), shown = parts.filter(p => p[1] >= 0.001 * t.step_s), rest = parts.slice(shown.length);
    if (rest.length)
        shown.push([`${rest.length} smaller`, rest.reduce((sum, p) => sum + p[1], 0), 9]);
    say_in('time', `A step takes ${seconds_words(t.step_s)}, 90 %: ${interval_of(t)}.`);
    tools('time', () => [['part', 'seconds'], ...parts.map(p => p.slice(0, 2))]);
    await chart_bars(box_of('time'), shown.map(([name, value, colour]) =>
        ({ name, value, colour, words: `${seconds_words(value)}, ${share_words(value / t.step_s)}` })), 'Time by part');
}

// ---- why not ----

// What a plan that was found takes of a GPU: what the allocator reserves; of those whose allocator was not replayed, what they need.
const memory_of = p => p.memory?.taken_bytes ?? p.taken_bytes ?? p.needed_bytes;

// Of plans that a search found: the recommended one, the first of this dialect, the one that needs least.
function found_ways(found, dialect) {
    const all = [...found.plans.map(p => ({ ...p, bytes: memory_of(p), s: p.time.step_s })),
        ...(found.pareto || []).map(p => ({ ...p, bytes: memory_of(p), s: p.step_s }))].filter(p => p.plan && p.s);
    const least = all.reduce((m, p) => !m || p.bytes < m.bytes ? p : m, null),
        ways = [all[0], all.find(p => p.plan.dialect === dialect), least].filter(Boolean);
    return ways.filter((p, i) => ways.findIndex(q => q.label === p.label) === i);
}

// Marks which of the ways that fit takes the least time, once the time of each is known: { s: seconds or a promise of them, at: element }.
async function mark_cheapest(ways) {
    const s = await Promise.all(ways.map(w => w.s)), least = Math.min(...s.filter(v => v > 0));
    ways.forEach((w, i) => {
        if (w.told !== true && s[i] > 0)
            w.at.append(`, a step ${seconds_words(s[i])}`);
        if (s[i] === least)
            w.at.append(', ', el('b', {}, 'the least time, so the cheapest on these GPUs'));
    });
}

// again(plan) takes a changed plan; found: what a search gave for the same question, or null; step_of(plan): a promise of its seconds.
function show_whynot(d, again, more, found, step_of) {
    section('whynot').hidden = d.fits;
    if (d.fits)
        return;
    const priced = [], f = d.first_over, list = el('ul', { className: 'ways' }),
        ways = [...d.advice.to_lower_it].sort((a, b) => b.fits - a.fits);
    for (const w of ways.slice(0, 8)) {
        const b = el('button', { type: 'button', className: w.fits ? 'strong' : '' }, w.change);
        b.addEventListener('click', () => again(w.plan, w.change));
        const at = el('li', {}, b, ` ${bytes_words(w.peak_bytes)}${w.fits ? ': it fits' : ': still too much'}`);
        list.append(at);
        if (w.fits)
            priced.push({ s: step_of(w.plan), at });
    }
    const others = el('ul', { className: 'ways' });
    for (const p of found ? found_ways(found, d.plan.dialect) : []) {
        const b = el('button', { type: 'button', className: 'strong', title: p.label }, plan_said(p));
        b.addEventListener('click', () => again(p.plan, p.label));
        const at = el('li', {}, b, ` ${bytes_words(p.bytes)}, a step ${seconds_words(p.s)}`);
        others.append(at);
        priced.push({ s: p.s, at, told: true });
    }
    mark_cheapest(priced);
    box_of('whynot').replaceChildren(
        f ? el('p', {}, `The first buffer that does not fit: `, el('b', {}, f.buffer),
            ` (${bytes_words(f.bytes)}), at ${f.op} of the ${f.phase} step.`) : '',
        el('p', {}, ways.length ? 'Changes of one thing, each computed:' : 'No change of one option lowers it.'), list, more,
        others.childElementCount ? el('p', {},
            'Plans of the search that fit: the recommended one, one of this framework, the smallest:') : '', others);
}

// ---- plans found ----

// What was recommended, and why: numbers are the search's.
function found_said(found) {
    const [best, ...rest] = found.plans, ties = rest.filter(p => p.tie),
        slower = rest.find(p => !p.tie && p.time.step_s > best.time.step_s);
    if (!best)
        return '';
    return (ties.length ? `${ties.length + 1} plans are equally fast within the prediction's error; the recommended one has memory `
        + 'to spare or changes fewest settings. ' : 'No other plan is within the prediction\'s error of the recommended one. ')
        + (slower ? `The next takes ${seconds_words(slower.time.step_s)} a step, `
            + `${(100 * (slower.time.step_s / best.time.step_s - 1)).toFixed(0)} % more: ${plan_said(slower)}.` : '');
}

async function show_plans(found, shown_label, pick) {
    const known = new Set(), points = [], best = found.plans[0];
    section('plans').hidden = false;
    grey('plans', false);
    say_in('plans', found_said(found));
    const add = (p, memory, time, mark, low, high) => {
        if (known.has(p.label) || !time)
            return;
        known.add(p.label);
        const tight = memory > found.usable ? 'tight' : '', replayed = p.memory?.taken_bytes ?? p.taken_bytes;
        points.push({ label: p.label, said: plan_said(p), x: memory, y: time, low, high,
            mark: [mark, replayed ? '' : 'needs', p.label === shown_label ? 'shown' : ''].filter(Boolean).join(' '), tight, plan: p.plan,
            words: [plan_said(p), `${replayed ? 'reserves' : 'needs'} ${bytes_words(memory)}, `
                + `${seconds_words(time)}${low ? ` (90 %: ${interval_words(low, time, high)})` : ''}`,
                mark === 'best' ? 'recommended' : mark === 'tie' ? 'within the error of the fastest' : '',
                    tight ? 'tight: less than 5 % stays free' : ''].filter(Boolean), pick: () => pick(p) });
    };
    found.usable = best ? best.memory.available_bytes : 0;
    for (const p of found.plans)
        add(p, memory_of(p), p.time.step_s, p === best ? 'best' : p.tie ? 'tie' : '', p.time.low_s, p.time.high_s);
    for (const p of [...(found.pareto || []), ...(found.runners_up || [])])
        add(p, memory_of(p), p.step_s, '');
    if (!points.length) {
        undrawn(box_of('plans'), el('p', {}, 'Nothing fits.'));
        section('plans').querySelector('.table').replaceChildren();
        return;
    }
    const fastest = Math.min(...points.map(p => p.y)), near = points.filter(p => p.y <= 2.5 * fastest || p.mark.includes('shown'));
    if (near.length < points.length)
        say_in('plans', `${found_said(found)} ${points.length - near.length} `
            + `that take more than 2.5 times as long are in the table alone.`);
    const picture = chart_plans(box_of('plans'), { points: near, limit: found.usable, x_label: 'memory of a GPU', y_label: 'a step',
        label: 'Plans: time against memory' });
    const means = [{ words: 'recommended', colour: 1 }, { words: 'within the error of it', colour: 4 },
        { words: 'slower, or less memory', colour: 0 },
        ...(points.some(p => p.mark.includes('needs'))
            ? [{ words: 'what it needs: its allocator was not replayed', kind: 'hollow' }] : [])];
    const rows = points.map(p => {
        const b = el('button', { type: 'button', title: p.label }, p.said);
        b.addEventListener('click', p.pick);
        return { className: p.mark.includes('shown') ? 'shown' : '',
            cells: [b, p.words.slice(2).join('; '), bytes_words(p.x), seconds_words(p.y),
            p.low ? interval_words(p.low, p.y, p.high) : ''] };
    });
    section('plans').querySelector('.table').replaceChildren(el('details',
        { open: section('plans').querySelector('details')?.open ?? false },
        el('summary', {}, `${points.length} plans, each to look inside`),
        table(['plan', '', 'memory', 'step', '90 % interval'], rows, [2, 3, 4])));
    tools('plans', () => [['plan', 'memory bytes', 'step s', 'low s', 'high s'], ...points.map(p => [p.label, p.x, p.y, p.low, p.high])]);
    if (await picture)
        legend(box_of('plans'), means);
}

// ---- what if ----

async function show_curve(axis, sweep, now) {
    const name = p => String(Object.values(p.at)[0]), rate = p => p.tokens_per_s ?? p.samples_per_s ?? null,
        unit = sweep.points.some(p => p.samples_per_s) ? 'samples/s' : 'tokens/s';
    const points = sweep.points.map(p => ({ name: axis.label(name(p)), y: rate(p), now: name(p) === String(now),
        bad: p.fits ? '' : p.verdict === 'refused' ? 'refused' : 'no room',
        low: p.step_s ? rate(p) * p.step_s / p.high_s : undefined, high: p.step_s ? rate(p) * p.step_s / p.low_s : undefined,
        words: [axis.label(name(p)), p.why_not || '', p.fits ? 'fits' : 'does not fit',
            p.memory_bytes ? `${bytes_words(p.taken_bytes || p.memory_bytes)} of ${bytes_words(p.available_bytes)}` : '',
            p.step_s ? `a step ${seconds_words(p.step_s)}, 90 %: ${interval_words(p.low_s, p.step_s, p.high_s)}` : '',
            p.step_s ? `${count_words(rate(p))} ${unit}` : ''].filter(Boolean) }));
    say_in('whatif', `The plan shown, with ${axis.about}; ${unit} of all GPUs, with the 90 % interval.`);
    tools('whatif', () => [[axis.key, 'fits', 'memory bytes', 'step s', 'low s', 'high s', unit],
        ...sweep.points.map(p => [name(p), p.fits, p.memory_bytes, p.step_s, p.low_s, p.high_s, rate(p)])]);
    await chart_curve(box_of('whatif'), { points, y_label: unit, label: `What if: ${axis.about}` });
    grey('whatif', false);
}

// ---- how few ----

function show_few(limits, q) {
    grey('few', false);
    const rows = limits.limits.filter(l => l.dialect !== 'paper')
        .map(l => ({ cells: l.refused ? [`${l.strategy} ${l.dialect}`, '', '', '', l.refused.replace(/^limits: /, '')]
        : [`${l.strategy} ${l.dialect}`, l.max_params ? count_words(l.max_params) : 'none',
        l.max_micro_batch ? String(l.max_micro_batch) : 'does not fit', l.min_gpus ? String(l.min_gpus) : 'none', ''] }));
    say_in('few', `Of each strategy, with full recompute and nothing offloaded: the largest model of this family on `
        + `${cluster_words(q)}, and of your model the most samples at once and the fewest GPUs of this type, in nodes of ${q.node}.`);
    section('few').querySelector('.table').replaceChildren(table(['strategy', 'largest model', 'samples at once', 'fewest GPUs', ''],
        rows, [1, 2, 3]));
    tools('few', () => [['strategy', 'dialect', 'max params', 'max micro-batch', 'min gpus'],
        ...limits.limits.map(l => [l.strategy, l.dialect, l.max_params, l.max_micro_batch, l.min_gpus])]);
}

// fit: what dpx_fit() says of the question's GPU; take(n): asks the same of n GPUs.
function show_fewest(fit, q, take) {
    const p = document.getElementById('fewest'), row = fit.gpus[0];
    p.hidden = false;
    if (!row || !row.gpus)
        return p.replaceChildren(`No number of ${row ? row.title : q.gpu} up to ${row ? row.tried : 0} holds it without offload.`
            + (row && row.more_refused ? ` More: ${row.more_refused}.` : ''));
    const b = el('button', { type: 'button' }, row.gpus === q.gpus ? 'these' : `take ${row.gpus}`);
    b.disabled = row.gpus === q.gpus;
    b.addEventListener('click', () => take(row.gpus));
    p.replaceChildren('The fewest ', row.title, ' that hold it, nothing offloaded: ', el('b', {}, String(row.gpus)), ', as ',
        `${row.words}: ${bytes_words(row.memory.taken_bytes || row.memory.needed_bytes)} of ${bytes_words(row.memory.usable_bytes)} a GPU`
        + `${row.memory.tight ? ', tight' : ''}, a step ${seconds_words(row.step_s)} (90 %: `
        + `${interval_words(row.low_s, row.step_s, row.high_s)}). `, b);
}
