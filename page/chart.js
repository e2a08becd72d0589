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

// ---- units ----

const GIB = 2 ** 30;

function bytes_words(n) {
    const unit = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
    let i = 0;
    for (; Math.abs(n) >= 1024 && i < unit.length - 1; i++)
        n /= 1024;
    return (i && Math.abs(n) < 100 ? n.toPrecision(Math.abs(n) < 1 ? 2 : 4) : String(Math.round(n))).replace(/(\.\d*?)0+$/, '$1')
        .replace(/\.$/, '') + ' ' + unit[i];
}

function seconds_words(s) {
    if (s === 0)
        return '0 s';
    const [f, u] = Math.abs(s) >= 1 ? [1, 's'] : Math.abs(s) >= 1e-3 ? [1e3, 'ms'] : [1e6, 'µs'];
    return Number((s * f).toPrecision(4)) + ' ' + u;
}

const count_words = n => n >= 1e4 ? Number(n.toPrecision(4)).toLocaleString('en') : String(Number(n.toPrecision(4)));

// Round numbers from `from` to `to`, about n of them; of bytes in powers of two.
function round_steps(from, to, n, binary) {
    const raw = (to - from) / n || 1, base = binary ? 2 ** Math.floor(Math.log2(raw)) : 10 ** Math.floor(Math.log10(raw));
    const step = base * (binary ? 2 : [1, 2, 5, 10].find(k => k * base >= raw)), steps = [];
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

// { categories, colours: number of each category, t, bytes: [[of each category]], words, lines: [{ words, bytes, kind }], peak_words,
// end_s }; the stack from the bottom up.
function chart_memory(box, d) {
    const c = canvas(box, 300, 'Memory over one step, by category'), plot = { x: 58, y: 14, w: c.width - 70, h: 240 };
    const totals = d.bytes.map(b => b.reduce((a, v) => a + v, 0)), most = Math.max(...totals),
        top = Math.max(most, ...d.lines.map(l => l.bytes)) * 1.06;
    const x = axis_x(c, plot, 0, d.end_s, seconds_words), y = axis_y(c, plot, 0, top, bytes_words, true);
    const used = d.categories.map((name, k) => ({ words: name, k, colour: d.colours[k], most: Math.max(...d.bytes.map(b => b[k])) }))
        .filter(k => k.most > 0);
    const sum = totals.map(() => 0);

    for (const k of used) {
        let up = '', down = '';
        d.t.forEach((t, i) => {
            const next = i + 1 < d.t.length ? d.t[i + 1] : d.end_s;
            down = `L${x(next).toFixed(1)} ${y(sum[i]).toFixed(1)}L${x(t).toFixed(1)} ${y(sum[i]).toFixed(1)}` + down;
            sum[i] += d.bytes[i][k.k];
            up += `${i ? 'L' : 'M'}${x(t).toFixed(1)} ${y(sum[i]).toFixed(1)}L${x(next).toFixed(1)} ${y(sum[i]).toFixed(1)}`;
        });
        c.s.append(svg('path', { d: up + down + 'Z', fill: `var(--c${k.colour})`, class: 'area' }));
    }
    d.lines.forEach((l, i) => c.s.append(svg('line', { x1: plot.x, x2: plot.x + plot.w, y1: y(l.bytes), y2: y(l.bytes),
        class: 'line ' + l.kind }),
        text(plot.x + plot.w - 4, y(l.bytes) + (i % 2 ? 13 : -4), `${l.words} ${bytes_words(l.bytes)}`,
            { 'text-anchor': 'end', class: 'said' })));
    const at = totals.indexOf(most), px = x(d.t[at]), left = px < plot.x + plot.w / 2;
    c.s.append(svg('circle', { cx: px, cy: y(most), r: 4, class: 'peak' }),
        text(px + (left ? 8 : -8), Math.min(y(most) + 16, plot.y + plot.h - 6), `${bytes_words(most)} at ${d.words[at]}`,
            { 'text-anchor': left ? 'start' : 'end', class: 'said' }));
    const cursor = svg('line', { y1: plot.y, y2: plot.y + plot.h, class: 'cursor', visibility: 'hidden' });
    c.s.append(cursor);
    walk(c, plot, f => {
        const t = f * d.end_s;
        let i = 0;
        while (i + 1 < d.t.length && d.t[i + 1] <= t)
            i++;
        cursor.setAttribute('visibility', 'visible');
        cursor.setAttribute('x1', x(t));
        cursor.setAttribute('x2', x(t));
        tip_show(c, x(t), plot.y + 20, [{ words: `${d.words[i]}: ${bytes_words(totals[i])}`, head: true },
            `${seconds_words(d.t[i])} into the step`,
            ...used.filter(k => d.bytes[i][k.k] > 0).reverse().map(k =>
                ({ words: `${k.words} ${bytes_words(d.bytes[i][k.k])}`, colour: k.colour }))]);
    }, () => { c.tip.hidden = true; cursor.setAttribute('visibility', 'hidden'); });
    legend(box, used);
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
    const high = r => r.main ? 26 : 16, gap = r => r.main ? 18 : 6, tall = d.rows.reduce((a, r) => a + high(r) + gap(r), 0);
    const c = canvas(box, tall + 44, 'The step on its streams: compute above communication'),
        plot = { x: Math.min(118, c.width / 4), y: 6, h: tall };
    plot.w = c.width - plot.x - 12;
    const { from, to } = d.view, x = axis_x(c, plot, from, to, seconds_words);
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
        { words: 'exposed communication: below compute, its share of the time', kind: 'hatched' }]);
}

// ---- bars ----

// [{ name, value, words, colour }] below each other; names beside the bars, above them where the box is narrow.
function chart_bars(box, bars, label) {
    const narrow = (box.clientWidth || 600) < 480, h = narrow ? 14 : 24, pitch = narrow ? 36 : 30,
        c = canvas(box, Math.max(1, bars.length) * pitch + 6, label), room = narrow ? 2 : Math.min(230, c.width * 0.42),
        most = Math.max(...bars.map(b => b.value), 1e-300);
    const words = Math.min(c.width * (narrow ? 0.6 : 0.4), 7 * Math.max(...bars.map(b => b.words.length), 8) + 10);
    bars.forEach((b, i) => {
        const y = 4 + i * pitch + (narrow ? 16 : 0), w = (c.width - room - words) * b.value / most;
        c.s.append(narrow ? text(room, y - 4, b.name, { class: 'tick' })
            : text(room - 8, y + 16, b.name, { 'text-anchor': 'end', class: 'tick' }),
            svg('rect', { x: room, y, width: Math.max(1, w), height: h, fill: `var(--c${b.colour ?? 4})` }),
            text(room + Math.max(1, w) + 6, y + h / 2 + 4, b.words, { class: 'tick' }));
    });
}

// ---- points with intervals, and curves ----

// { points: [{ x, y, low, high, words: [lines], mark, pick }], limit, x_words, y_words, x_label, y_label }
function chart_plans(box, d) {
    const c = canvas(box, 320, d.label), plot = { x: 62, y: 14, w: c.width - 76, h: 256 };
    const xs = d.points.map(p => p.x).concat(d.limit ? [d.limit] : []), ys = d.points.flatMap(p => [p.low ?? p.y, p.high ?? p.y]);
    const x0 = Math.min(...xs) * 0.95, x1 = Math.max(...xs) * 1.05, y0 = Math.min(...ys) * 0.94, y1 = Math.max(...ys) * 1.04;
    const x = axis_x(c, plot, x0, x1, d.x_words, d.x_label, d.x_words === bytes_words), y = axis_y(c, plot, y0, y1, d.y_words);
    c.s.append(text(plot.x, 10, d.y_label, { class: 'tick' }));
    if (d.limit)
        c.s.append(svg('line', { x1: x(d.limit), x2: x(d.limit), y1: plot.y, y2: plot.y + plot.h, class: 'line limit' }),
            text(x(d.limit) - 4, plot.y + plot.h - 6, 'usable', { 'text-anchor': 'end', class: 'said' }));
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
    const c = canvas(box, 250, d.label), plot = { x: 66, y: 18, w: c.width - 104, h: 190 }, ok = d.points.filter(p => p.y !== null);
    const y1 = Math.max(0, ...ok.map(p => p.high ?? p.y)) * 1.05 || 1, y = axis_y(c, plot, 0, y1, ok.length ? d.y_words : () => ''),
        n = d.points.length;
    const x = i => plot.x + plot.w * (n > 1 ? i / (n - 1) : 0.5);
    c.s.append(text(plot.x, 12, d.y_label, { class: 'tick' }));
    // Where names would touch each other every second one stands a line lower.
    const close = plot.w / n < 8 * Math.max(...d.points.map(p => Math.max(p.name.length, p.bad.length))),
        lower = i => close && i % 2 ? 14 : 0;
    d.points.forEach((p, i) => c.s.append(text(x(i), plot.y + plot.h + 16 + lower(i), p.name,
        { 'text-anchor': 'middle', class: p.now ? 'tick strong' : 'tick' }),
        p.bad ? text(x(i), plot.y + plot.h - 6 - lower(i), p.bad, { 'text-anchor': 'middle', class: 'said bad' }) : null));
    const run = f => d.points.map((p, i) => p.y === null ? null : `${x(i).toFixed(1)} ${y(f(p)).toFixed(1)}`).filter(Boolean);
    if (ok.length && ok[0].low !== undefined)
        c.s.append(svg('path', { d: 'M' + run(p => p.high).concat(run(p => p.low).reverse()).join('L') + 'Z', class: 'band' }));
    if (ok.length)
        c.s.append(svg('path', { d: 'M' + run(p => p.y).join('L'), class: 'curve' }));
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
