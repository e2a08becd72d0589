// chart.js -- the figures, as SVG.  Each function draws into a box: chart_X(box, data), and draws anew when called again.
// Texts come from models and plans: they are set as text, never as markup.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

function svg(name, attributes, ...children) {
    const e = document.createElementNS(SVG, name);
    for (const k in attributes)
        e.setAttribute(k, attributes[k]);
    e.append(...children.filter(c => c !== null && c !== undefined));
    return e;
}

// ---- axes ----

// Round numbers from `from` to `to`, about n of them; of bytes in powers of two.
function round_steps(from, to, n, binary) {
    const raw = (to - from) / n || 1, base = binary ? 2 ** Math.floor(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
    const step = base * (binary ? 2 : [1, 2, 2.5, 5, 10].find(k => k * base >= raw)), steps = [];
    for (let v = Math.ceil(from / step) * step; v <= to + step * 1e-9; v += step)
        steps.push(v);
    return steps;
}

// ---- what figures have in common ----

// An <svg> of the box's width; what was there goes, the focus stays.
function canvas(box, height, label) {
    const width = Math.max(260, box.clientWidth || 600), s = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
        'aria-label': label, tabindex: 0, class: 'figure' });
    const focused = box.contains(document.activeElement);
    box.querySelectorAll(':scope > svg, :scope > .tip').forEach(e => e.remove());
    const tip = document.createElement('div');
    tip.className = 'tip';
    tip.hidden = true;
    tip.setAttribute('role', 'status');
    box.append(s, tip);
    if (focused)
        s.focus({ preventScroll: true });
    return { s, width, height, tip, box };
}

function text(x, y, words, extra = {}) {
    return svg('text', { x, y, ...extra }, String(words));
}

// Words over a picture, on a plate that keeps them readable.
function said(c, x, y, words, anchor, extra = '') {
    const t = text(x, y, words, { 'text-anchor': anchor, class: 'said ' + extra });
    c.s.append(t);
    let r = t.getBBox();
    const over = Math.max(0, r.x + r.width + 5 - c.width) || Math.min(0, r.x - 3);      // beyond the picture's right or left
    if (over) {
        t.setAttribute('x', x - over);
        r = t.getBBox();
    }
    t.before(svg('rect', { x: r.x - 3, y: r.y - 1, width: r.width + 6, height: r.height + 2, rx: 3, class: 'plate' }));
}

// Where the plots of a step begin: memory and streams lie below each other on one axis of time.
const step_left = width => width < 480 ? 60 : 92;

// Lines and numbers of an axis: x below, y to the left.
function axis_x(c, plot, from, to, words, label, binary) {
    const at = v => plot.x + (v - from) / (to - from || 1) * plot.w;
    for (const v of round_steps(from, to, Math.max(2, plot.w / 110), binary))
        c.s.append(svg('line', { x1: at(v), x2: at(v), y1: plot.y, y2: plot.y + plot.h, class: 'grid' }),
            text(at(v), plot.y + plot.h + 14, words(v), { 'text-anchor': 'middle', class: 'tick' }));
    if (label)
        c.s.append(text(plot.x + plot.w, plot.y + plot.h + 28, label, { 'text-anchor': 'end', class: 'tick' }));
    return at;
}

function axis_y(c, plot, from, to, words, binary) {
    const at = v => plot.y + plot.h - (v - from) / (to - from || 1) * plot.h;
    for (const v of round_steps(from, to, Math.max(2, plot.h / 45), binary))
        c.s.append(svg('line', { x1: plot.x, x2: plot.x + plot.w, y1: at(v), y2: at(v), class: 'grid' }),
            text(plot.x - 5, at(v) + 4, words(v), { 'text-anchor': 'end', class: 'tick' }));
    return at;
}

// Beside the pointer, inside the box.
function tip_show(c, x, y, lines) {
    c.tip.replaceChildren(...lines.map(l => {
        const row = document.createElement('div');
        if (l.colour !== undefined) {
            const key = document.createElement('i');
            key.style.background = `var(--c${l.colour})`;
            row.append(key);
        }
        row.append(l.words ?? l);
        if (l.head)
            row.className = 'head';
        return row;
    }));
    c.tip.hidden = false;
    const w = c.tip.offsetWidth;
    c.tip.style.left = Math.max(0, Math.min(x + 14, c.box.clientWidth - w - 2)) + 'px';
    c.tip.style.top = Math.max(0, y - 10) + 'px';
}

// Moves along a figure by mouse or arrow keys: show(fraction of the plot's width, from 0 to 1).
function walk(c, plot, show, hide) {
    let at = 0.5;
    const go = f => { at = Math.min(1, Math.max(0, f)); show(at); };
    c.s.addEventListener('pointermove', e => {
        const r = c.s.getBoundingClientRect();
        go(((e.clientX - r.left) * c.width / r.width - plot.x) / plot.w);
    });
    c.s.addEventListener('pointerleave', hide);
    c.s.addEventListener('blur', hide);
    c.s.addEventListener('keydown', e => {
        const by = { ArrowLeft: -0.01, ArrowRight: 0.01, Home: -1, End: 1 }[e.key];
        if (by === undefined || e.ctrlKey || e.altKey)
            return;
        e.preventDefault();
        go(at + by * (e.shiftKey ? 5 : 1));
    });
}

function legend(box, entries) {
    let l = box.querySelector('.legend');
    if (!l) {
        l = document.createElement('div');
        l.className = 'legend';
        box.append(l);
    }
    l.replaceChildren(...entries.map(({ words, colour, kind }) => {
        const e = document.createElement('span'), key = document.createElement('i');
        key.className = kind || '';
        if (colour !== undefined)
            key.style.background = `var(--c${colour})`;
        e.append(key, words);
        return e;
    }));
    box.append(l);
}

// ---- memory over a step ----

// For each pixel of the plot the moment at which most is there: a peak shorter than a pixel is seen too.
function moments_of_pixels(totals, t, end_s, pixels) {
    const at = new Int32Array(pixels).fill(-1);        // before the first: none
    const column = s => Math.min(pixels - 1, Math.max(0, Math.floor(s / end_s * pixels)));
    t.forEach((begin, i) => {
        for (let p = column(begin), last = column(i + 1 < t.length ? t[i + 1] : end_s); p <= last; p++)
            if (at[p] < 0 || totals[i] > totals[at[p]])
                at[p] = i;
    });
    return at;
}

// The stack as areas, from the bottom up.
function memory_areas(c, d, used, totals, plot, y) {
    const at = moments_of_pixels(totals, d.t, d.end_s, Math.round(plot.w)), sum = d.t.map(() => 0), first = at.findIndex(i => i >= 0);
    for (const k of used) {
        const up = [], down = [];
        for (let p = first, q; p < at.length; p = q) {
            for (q = p + 1; q < at.length && at[q] === at[p]; q++);
            const from = plot.x + p, to = plot.x + q, i = at[p], low = y(sum[i]).toFixed(1), high = y(sum[i] + d.bytes[i][k.k]).toFixed(1);
            up.push(`${from} ${high}L${to} ${high}`);
            down.push(`${to} ${low}L${from} ${low}`);
        }
        d.bytes.forEach((b, i) => { sum[i] += b[k.k]; });
        c.s.append(svg('path', { d: `M${up.join('L')}L${down.reverse().join('L')}Z`, fill: `var(--c${k.colour})`, class: 'area' }));
    }
}

// Lines of a picture of memory; words that would touch stand below their line.
function memory_lines(c, plot, lines, y) {
    let last = null;
    for (const l of [...lines].sort((a, b) => b.bytes - a.bytes)) {
        const at = y(l.bytes), below = last !== null && at - last < 32;
        c.s.append(svg('line', { x1: plot.x, x2: plot.x + plot.w, y1: at, y2: at, class: 'line ' + l.kind }));
        said(c, plot.x + plot.w - 4, at + (below || at < plot.y + 14 ? 15 : -6), `${l.words} ${bytes_words(l.bytes)}`, 'end');
        last = below ? at + 15 : at;
    }
}

// { categories, colours: number of each category, t, bytes: [[of each category]], words, lines: [{ words, bytes, kind }],
// live: [lines, of the peak], end_s }; the stack from the bottom up.
function chart_memory(box, d) {
    const c = canvas(box, 310, 'Memory over one step, by category'), left = step_left(c.width),
        plot = { x: left, y: 14, w: c.width - left - 12, h: 256 };
    const totals = d.bytes.map(b => b.reduce((a, v) => a + v, 0)), most = Math.max(...totals),
        top = Math.max(most, ...d.lines.map(l => l.bytes)) * 1.06;
    const x = axis_x(c, plot, 0, d.end_s, seconds_tick), y = axis_y(c, plot, 0, top, bytes_tick, true), peak = totals.indexOf(most);
    const used = d.categories.map((name, k) => ({ name, k, colour: d.colours[k], most: Math.max(...d.bytes.map(b => b[k])) }))
        .filter(k => k.most > 0);

    memory_areas(c, d, used, totals, plot, y);
    memory_lines(c, plot, d.lines, y);
    const px = x(d.t[peak]), start = px < plot.x + plot.w / 2;
    c.s.append(svg('circle', { cx: px, cy: y(most), r: 5, class: 'peak' }));
    said(c, px + (start ? 12 : -12), Math.min(y(most) + 20, plot.y + plot.h - 6), `peak ${bytes_words(most)}, at ${d.words[peak]}`,
        start ? 'start' : 'end');
    const cursor = svg('line', { y1: plot.y, y2: plot.y + plot.h, class: 'cursor', visibility: 'hidden' });
    c.s.append(cursor);
    walk(c, plot, f => {
        const t = f * d.end_s, near = Math.abs(x(t) - px) < 5;
        let i = near ? peak : 0;
        while (!near && i + 1 < d.t.length && d.t[i + 1] <= t)
            i++;
        cursor.setAttribute('visibility', 'visible');
        cursor.setAttribute('x1', near ? px : x(t));
        cursor.setAttribute('x2', near ? px : x(t));
        tip_show(c, x(t), plot.y + 20, [{ words: `${d.words[i]}: ${bytes_words(totals[i])}`, head: true },
            i === peak ? `the peak, ${seconds_words(d.t[i])} into the step` : `${seconds_words(d.t[i])} into the step`,
            ...used.filter(k => d.bytes[i][k.k] > 0).reverse().map(k =>
                ({ words: `${k.name} ${bytes_words(d.bytes[i][k.k])}`, colour: k.colour })),
            ...(i === peak && d.live.length ? [{ words: 'what lives there', head: true }, ...d.live] : [])]);
    }, () => { c.tip.hidden = true; cursor.setAttribute('visibility', 'hidden'); });
    legend(box, used.map(k => ({ words: `${k.name} ${bytes_words(d.bytes[peak][k.k])}`, colour: k.colour })));
}

// ---- the step on its streams ----

// Below a row, for every two pixels: how much of them is exposed, as a bar of `h` at most.
function exposed_bars(bare, x, plot, y, h) {
    const share = new Float64Array(Math.ceil(plot.w / 2) + 1);
    for (const [s, e] of bare)
        for (let a = Math.max(0, x(s) - plot.x), b = Math.min(plot.w, x(e) - plot.x); a < b;) {
            const bin = Math.floor(a / 2), end = Math.min(b, 2 * bin + 2);
            share[bin] += (end - a) / 2;
            if (end <= a)
                break;
            a = end;
        }
    return [...share].map((v, i) => v > 0.01 ? `M${plot.x + 2 * i} ${y}h2v${(h * Math.min(1, v)).toFixed(2)}h-2Z` : '').join('');
}

// { rows: [{ name, main, entries: [{ s, e, words, kind }], exposed: [[s, e]] }], colours: { kind: number }, end_s,
// view: { from, to } }: seconds.  Zooms by
// wheel, +, -, 0; pans by dragging
// and arrows.  `view` is kept by the caller.
function chart_streams(box, d) {
    const high = r => r.main ? 34 : 18, gap = r => r.main ? 20 : 7, tall = d.rows.reduce((a, r) => a + high(r) + gap(r), 0);
    const c = canvas(box, tall + 44, 'The step on its streams: compute above communication'),
        longest = Math.max(...d.rows.map(r => r.name.length)),
        plot = { x: Math.max(step_left(c.width), Math.min(c.width / 3, 7 * longest + 14)), y: 6, h: tall };
    plot.w = c.width - plot.x - 12;
    const { from, to } = d.view, x = axis_x(c, plot, from, to, seconds_tick);
    const clip = 'clip' + Math.random().toString(36).slice(2);
    c.s.append(svg('defs', {}, svg('clipPath', { id: clip }, svg('rect', { x: plot.x, y: 0, width: plot.w, height: tall + 8 })),
        svg('pattern', { id: clip + 'h', width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
            svg('rect', { width: 2, height: 5, class: 'hatch' }))));
    const all = svg('g', { 'clip-path': `url(#${clip})` });
    c.s.append(all);
    let y = plot.y;
    for (const r of d.rows) {
        const h = high(r), paths = {}, under = {};
        r.y = y;
        r.h = h;
        c.s.append(text(plot.x - 6, y + h / 2 + 4, r.name, { 'text-anchor': 'end', class: r.main ? 'tick strong' : 'tick' }));
        all.append(svg('rect', { x: plot.x, y, width: plot.w, height: h, class: 'track' }));
        const narrow = new Map();       // columns of what is less than a pixel wide: time of each kind
        for (const e of r.entries) {
            if (e.e < from || e.s > to)
                continue;
            const a = x(e.s), b = x(e.e);
            if (b - a >= 1)
                paths[e.kind] = (paths[e.kind] || '') + `M${a.toFixed(2)} ${y}H${b.toFixed(2)}v${h}H${a.toFixed(2)}Z`;
            else {
                const column = Math.floor(a), times = narrow.get(column) || {};
                times[e.kind] = (times[e.kind] || 0) + b - a;
                narrow.set(column, times);
            }
        }
        for (const [column, times] of narrow) {
            const kind = Object.keys(times).reduce((m, k) => times[k] > times[m] ? k : m);
            under[kind] = (under[kind] || '') + `M${column} ${y}h1v${h}h-1Z`;
        }
        for (const k in under)
            all.append(svg('path', { d: under[k], fill: `var(--c${d.colours[k]})` }));
        for (const k in paths)
            all.append(svg('path', { d: paths[k], fill: `var(--c${d.colours[k]})` }));
        const bare = (r.exposed || []).filter(([s, e]) => e > from && s < to);
        const wide = bare.filter(([s, e]) => x(e) - x(s) >= 2).map(([s, e]) =>
            `M${x(s).toFixed(2)} ${y}H${x(e).toFixed(2)}v${h}H${x(s).toFixed(2)}Z`);
        if (wide.length)
            all.append(svg('path', { d: wide.join(''), fill: `url(#${clip}h)`, class: 'exposed' }));
        if (bare.length)
            all.append(svg('path', { d: exposed_bars(bare, x, plot, y + h + 1, 10), class: 'hatch' }));
        y += h + gap(r);
    }
    const zoom = (f, k) => {
        const at = from + f * (to - from), w = Math.min(d.end_s, Math.max(d.end_s / 5000, (to - from) * k)),
            a = Math.max(0, Math.min(d.end_s - w, at - f * w));
        d.view.from = a;
        d.view.to = a + w;
        chart_streams(box, d);
    };
    const pan = by => {
        const w = to - from, a = Math.max(0, Math.min(d.end_s - w, from + by));
        d.view.from = a;
        d.view.to = a + w;
        chart_streams(box, d);
    };
    const fraction = e => {
        const r = c.s.getBoundingClientRect();
        return Math.min(1, Math.max(0, ((e.clientX - r.left) * c.width / r.width - plot.x) / plot.w));
    };
    c.s.addEventListener('wheel', e => { if (e.ctrlKey || e.shiftKey || d.view.to - d.view.from < d.end_s) {
        e.preventDefault(); zoom(fraction(e), e.deltaY > 0 ? 1.4 : 1 / 1.4); } }, { passive: false });
    c.s.addEventListener('dblclick', e => zoom(fraction(e), 1 / 3));
    c.s.addEventListener('keydown', e => {
        const w = to - from, act = { '+': () => zoom(0.5, 1 / 1.5), '=': () => zoom(0.5, 1 / 1.5), '-': () => zoom(0.5, 1.5),
            '0': () => zoom(0, 1e9),
            ArrowLeft: () => pan(-w / 8), ArrowRight: () => pan(w / 8) }[e.key];
        if (act && !e.ctrlKey && !e.altKey) {
            e.preventDefault();
            act();
        }
    });
    d.zoom = k => zoom(0.5, k);
    let held = null;
    c.s.addEventListener('pointerdown', e => { held = e.clientX; });
    c.s.addEventListener('pointerup', () => { held = null; });
    c.s.addEventListener('pointerleave', () => { held = null; c.tip.hidden = true; });
    c.s.addEventListener('pointermove', e => {
        const r = c.s.getBoundingClientRect(), py = (e.clientY - r.top) * c.height / r.height, t = from + fraction(e) * (to - from);
        if (held !== null && Math.abs(e.clientX - held) > 6 && to - from < d.end_s)
            return pan((held - e.clientX) / r.width * c.width / plot.w * (to - from));
        const row = d.rows.find(q => py >= q.y && py <= q.y + q.h), slack = (to - from) / plot.w;
        const hit = row && (row.entries.find(q => q.s <= t && q.e >= t) || row.entries.find(q => q.s - slack <= t && q.e + slack >= t));
        const bare = row && !hit && (row.exposed || []).find(q => q[0] <= t && q[1] >= t);
        if (hit)
            tip_show(c, x(t), row.y + row.h + 6, [{ words: hit.words, head: true },
                { words: `${hit.kind}, ${seconds_words(hit.e - hit.s)}`, colour: d.colours[hit.kind] },
                `from ${seconds_words(hit.s)}`]);
        else if (bare)
            tip_show(c, x(t), row.y + row.h + 6, [{ words: 'exposed', head: true },
                `compute waits ${seconds_words(bare[1] - bare[0])} for communication`]);
        else
            c.tip.hidden = true;
    });
    const kinds = [...new Set(d.rows.flatMap(r => r.entries.map(e => e.kind)))];
    legend(box, [...kinds.map(k => ({ words: k, colour: d.colours[k] })),
        { words: 'exposed: communication that compute waits for', kind: 'hatched' }]);
}

// ---- bars ----

// [{ name, value, words, colour, low, high }] below each other, with intervals where they are known;
// names beside the bars, above them where the box is narrow.
function chart_bars(box, bars, label) {
    const narrow = (box.clientWidth || 600) < 480, h = narrow ? 14 : 24, pitch = narrow ? 36 : 30,
        c = canvas(box, Math.max(1, bars.length) * pitch + 6, label), room = narrow ? 2 : Math.min(230, c.width * 0.42),
        most = Math.max(...bars.map(b => b.high ?? b.value), 1e-300);
    const words = Math.min(c.width * (narrow ? 0.6 : 0.4), 7 * Math.max(...bars.map(b => b.words.length), 8) + 10);
    bars.forEach((b, i) => {
        const y = 4 + i * pitch + (narrow ? 16 : 0), w = (c.width - room - words) * b.value / most,
            at = v => room + (c.width - room - words) * v / most;
        c.s.append(narrow ? text(room, y - 4, b.name, { class: 'tick' })
            : text(room - 8, y + 16, b.name, { 'text-anchor': 'end', class: 'tick' }),
            svg('rect', { x: room, y, width: Math.max(1, w), height: h, fill: `var(--c${b.colour ?? 4})` }),
            ...(b.low ? [svg('line', { x1: at(b.low), x2: at(b.high), y1: y + h / 2, y2: y + h / 2, class: 'interval strong' })] : []),
            text(Math.max(room + Math.max(1, w), b.low ? at(b.high) : 0) + 6, y + h / 2 + 4, b.words, { class: 'tick' }));
    });
}

// ---- points with intervals, and curves ----

// { points: [{ x, y, low, high, words: [lines], mark, pick }], limit, x_words, y_words, x_label, y_label }
function chart_plans(box, d) {
    const c = canvas(box, 320, d.label), plot = { x: 58, y: 18, w: c.width - 72, h: 252 };
    const xs = d.points.map(p => p.x).concat(d.limit ? [d.limit] : []), ys = d.points.flatMap(p => [p.low ?? p.y, p.high ?? p.y]);
    const x0 = Math.min(...xs) * 0.95, x1 = Math.max(...xs) * 1.05, y0 = Math.min(...ys) * 0.94, y1 = Math.max(...ys) * 1.04;
    const x = axis_x(c, plot, x0, x1, d.x_words, d.x_label, d.x_words === bytes_tick), y = axis_y(c, plot, y0, y1, d.y_words);
    c.s.append(text(plot.x, 10, d.y_label, { class: 'tick' }));
    if (d.limit) {
        c.s.append(svg('line', { x1: x(d.limit), x2: x(d.limit), y1: plot.y, y2: plot.y + plot.h, class: 'line limit' }));
        said(c, x(d.limit) - 6, plot.y + 12, `usable ${bytes_words(d.limit)}`, 'end');
    }
    for (const p of d.points) {
        const g = svg('g', { class: 'point ' + (p.mark || ''), tabindex: 0, role: 'button', 'aria-label': p.words.join(', ') });
        if (p.low !== undefined)
            g.append(svg('line', { x1: x(p.x), x2: x(p.x), y1: y(p.low), y2: y(p.high), class: 'interval' }));
        g.append(svg('circle', { cx: x(p.x), cy: y(p.y), r: 12, class: 'reach' }),
            p.mark && p.mark.includes('best') ? svg('rect', { x: x(p.x) - 6, y: y(p.y) - 6, width: 12, height: 12,
                transform: `rotate(45 ${x(p.x)} ${y(p.y)})`, class: 'dot' })
                : svg('circle', { cx: x(p.x), cy: y(p.y), r: 5, class: 'dot' }));
        const show = () => tip_show(c, x(p.x), y(p.y) + 12, p.words.map((w, i) => ({ words: w, head: !i })));
        g.addEventListener('pointerenter', show);
        g.addEventListener('focus', show);
        for (const off of ['pointerleave', 'blur'])
            g.addEventListener(off, () => { c.tip.hidden = true; });
        g.addEventListener('click', p.pick);
        g.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); p.pick(); } });
        c.s.append(g);
    }
}

// { points: [{ name, y, low, high, words: [lines], now, bad }], y_words, y_label }: at even distances.
function chart_curve(box, d) {
    const c = canvas(box, 316, d.label), plot = { x: 58, y: 18, w: c.width - 92, h: 252 }, ok = d.points.filter(p => p.y !== null);
    const y1 = Math.max(0, ...ok.map(p => p.high ?? p.y)) * 1.05 || 1, y = axis_y(c, plot, 0, y1, ok.length ? d.y_words : () => ''),
        n = d.points.length;
    const x = i => plot.x + plot.w * (n > 1 ? i / (n - 1) : 0.5);
    c.s.append(text(plot.x, 12, d.y_label, { class: 'tick' }));
    // Where words would touch each other every second one stands a line lower.
    const close = of => plot.w / n < 8 + 6.5 * Math.max(...d.points.map(p => p[of].length)), lower = of => i => of && i % 2 ? 14 : 0,
        name_lower = lower(close('name')), bad_lower = lower(close('bad'));
    d.points.forEach((p, i) => c.s.append(text(x(i), plot.y + plot.h + 16 + name_lower(i), p.name,
        { 'text-anchor': 'middle', class: p.now ? 'tick strong' : 'tick' }),
        p.bad ? text(x(i), plot.y + plot.h - 6 - bad_lower(i), p.bad, { 'text-anchor': 'middle', class: 'bad' }) : ''));
    // Only neighbours are joined: between them nothing was left out.
    const runs = d.points.reduce((all, p, i) => {
        if (p.y !== null)
            i && d.points[i - 1].y !== null ? all[all.length - 1].push(i) : all.push([i]);
        return all;
    }, []);
    const path = (run, f) => run.map(i => `${x(i).toFixed(1)} ${y(f(d.points[i])).toFixed(1)}`);
    for (const run of runs) {
        if (d.points[run[0]].low !== undefined)
            c.s.append(svg('path', { d: 'M' + path(run, p => p.high).concat(path(run, p => p.low).reverse()).join('L') + 'Z',
                class: 'band' }));
        c.s.append(svg('path', { d: 'M' + path(run, p => p.y).join('L'), class: 'curve' }));
    }
    // The interval of each point too: a point alone has no band.
    for (const [i, p] of d.points.entries())
        if (p.y !== null && p.low !== undefined)
            c.s.append(svg('line', { x1: x(i), x2: x(i), y1: y(p.low), y2: y(p.high), class: 'interval' }));
    d.points.forEach((p, i) => p.y !== null && c.s.append(svg('circle',
        { cx: x(i), cy: y(p.y), r: p.now ? 6 : 4, class: p.bad ? 'dot bad' : 'dot' })));
    walk(c, plot, f => {
        const i = Math.round(f * (n - 1)), p = d.points[i];
        tip_show(c, x(i), p.y === null ? plot.y + 40 : y(p.y) + 10, p.words.map((w, k) => ({ words: w, head: !k })));
    }, () => { c.tip.hidden = true; });
}

// ---- a figure as a file ----

// As text, with the light page's colours in the place of variables, on white.
function svg_file(e) {
    const copy = e.cloneNode(true), css = document.getElementById('style').textContent, light = {};
    for (const [, name, value] of css.slice(0, css.indexOf('@media')).matchAll(/--([a-z0-9]+):\s*([^;}]+)/g))
        light[name] = value.trim();
    const rules = css.split('\n').filter(l => /^\.figure /.test(l)).join('\n').replace(/^\.figure /gm, '');
    copy.setAttribute('xmlns', SVG);
    copy.prepend(svg('rect', { width: '100%', height: '100%', fill: '#fff' }),
        svg('style', {}, rules + '\ntext{font-family:sans-serif}'));
    return new XMLSerializer().serializeToString(copy).replace(/var\(--([a-z0-9]+)\)/g, (_, name) => light[name] || '#888');
}
