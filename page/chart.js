// chart.js -- the figures: base/chart of the library draws each as SVG; here it is put into its box, and pointers, keys and zoom are added.
//
//     await chart_bars(box, bars, 'Bytes by collective');
//
// Texts come from models and plans: the library escapes them, and its SVG becomes elements
// one by one: nothing in it runs.
'use strict';

const BARE = -1;            // a colour: hatched
const FORMS = { best: 1, tie: 2, needs: 4, shown: 8, bad: 16, peak: 32 };

const width_of = box => Math.max(260, Math.round(box.clientWidth || 600));

const SVG = 'http://www.w3.org/2000/svg';
const ELEMENTS = ['svg', 'g', 'path', 'rect', 'circle', 'text', 'title'];
const PLAIN = { '&lt;': '<', '&gt;': '>', '&amp;': '&', '&quot;': '"', '&#39;': "'" };
const plain_text = s => s.replace(/&(lt|gt|amp|quot|#39);/g, e => PLAIN[e]);

// The library's SVG as elements: those that it draws with, and no attribute that could run or fetch anything.
function svg_of(text) {
    let at = null, top = null;
    for (const [, close, name, attributes, alone, words] of text.matchAll(/<(\/?)([a-z]+)((?: [a-z0-9:-]+="[^"]*")*)(\/?)>|([^<]+)/gi)) {
        if (close)
            at = at.parentNode;
        else if (words !== undefined)
            at && at.append(plain_text(words));
        else {
            if (!ELEMENTS.includes(name))
                throw new Error(`a figure with a ${name}`);
            const e = document.createElementNS(SVG, name);
            for (const [, key, value] of attributes.matchAll(/ ([a-z0-9:-]+)="([^"]*)"/gi))
                if (!/^(on|href|xmlns|xlink|style)/i.test(key))
                    e.setAttribute(key, plain_text(value));
            at ? at.append(e) : top = e;
            if (!alone)
                at = e;
        }
    }
    return top;
}

// { s, plot: { x, y, w, h }, width, height, tip, box }; null: a newer drawing of this box was asked for meanwhile.  What was there stays
// until then, and the focus.  The request is kept for the file of its own.
async function drawn(box, request) {
    const turn = box.drawing = {}, a = await answers.ask('draw', { width: width_of(box), ...request }, { always: true });
    if (!a || box.drawing !== turn)
        return null;
    if (!a.doc)
        throw new Error(a.why);
    const s = svg_of(a.doc.svg);
    const tip = document.createElement('div'), focused = box.contains(document.activeElement);
    tip.className = 'tip';
    tip.hidden = true;
    tip.setAttribute('role', 'status');
    s.setAttribute('tabindex', 0);
    s.request = request;
    box.replaceChildren(s, tip);
    if (focused)
        s.focus({ preventScroll: true });
    const [x, y, w, h] = s.dataset.plot.split(' ').map(Number), { width, height } = s.viewBox.baseVal;
    return { s, plot: { x, y, w, h }, width, height, tip, box };
}

// Words in the place of a figure, whatever is being drawn for it.
function undrawn(box, ...words) {
    box.drawing = null;
    box.replaceChildren(...words);
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

// Where in the plot's width a pointer is, 0 to 1.
function fraction(c, e) {
    const r = c.s.getBoundingClientRect();
    return Math.min(1, Math.max(0, ((e.clientX - r.left) * c.width / r.width - c.plot.x) / c.plot.w));
}

// Moves along a figure by mouse or arrow keys: show(fraction of the plot's width).
function walk(c, show, hide) {
    let at = 0.5;
    const go = f => { at = Math.min(1, Math.max(0, f)); show(at); };
    c.s.addEventListener('pointermove', e => go(fraction(c, e)));
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

// Below a picture of points, what their forms mean.
function legend(box, entries) {
    const l = document.createElement('div');
    l.className = 'legend';
    l.append(...entries.map(({ words, colour, kind }) => {
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

// { categories, colours: number of each category, t, bytes: [[of each category]], words, lines: [{ words, bytes, look }],
// live: [lines, of the peak], end_s }; the stack from the bottom up.
async function chart_memory(box, d) {
    const totals = d.bytes.map(b => b.reduce((a, v) => a + v, 0)), peak = totals.indexOf(Math.max(...totals));
    const c = await drawn(box, { kind: 'areas', title: 'Memory over one step, by category', x: { unit: 'seconds' }, y: { unit: 'bytes' },
        areas: { names: d.categories, t: d.t, v: d.bytes, until: d.end_s, peak: d.words[peak] },
        levels: d.lines.map(l => ({ at: l.bytes, words: `${l.words} ${bytes_words(l.bytes)}`, look: l.look, axis: 'y' })) });
    if (!c)
        return;
    const cursor = document.createElementNS(SVG, 'line'), x = t => c.plot.x + c.plot.w * t / d.end_s, px = x(d.t[peak]);
    cursor.setAttribute('class', 'cursor');
    cursor.setAttribute('y1', c.plot.y);
    cursor.setAttribute('y2', c.plot.y + c.plot.h);
    walk(c, f => {
        const t = f * d.end_s, near = Math.abs(x(t) - px) < 5;
        let i = near ? peak : 0;
        while (!near && i + 1 < d.t.length && d.t[i + 1] <= t)
            i++;
        cursor.setAttribute('x1', near ? px : x(t));
        cursor.setAttribute('x2', near ? px : x(t));
        c.s.append(cursor);
        tip_show(c, x(t), c.plot.y + 20, [{ words: `${d.words[i]}: ${bytes_words(totals[i])}`, head: true },
            i === peak ? `the peak, ${seconds_words(d.t[i])} into the step` : `${seconds_words(d.t[i])} into the step`,
            ...d.categories.map((name, k) => ({ words: `${name} ${bytes_words(d.bytes[i][k])}`, colour: d.colours[k], n: d.bytes[i][k] }))
                .filter(l => l.n > 0).reverse(),
            ...(i === peak && d.live.length ? [{ words: 'what lives there', head: true }, ...d.live] : [])]);
    }, () => { c.tip.hidden = true; cursor.remove(); });
}

// ---- the step on its streams ----

// { rows: [{ name, main, entries: [{ s, e, words, kind }], exposed: [[s, e]] }], colours: { kind: number }, end_s,
// view: { from, to } }: seconds.  Zooms by wheel, +, -, 0; pans by dragging and arrows.  `view` is kept by the caller.
async function chart_streams(box, d) {
    const { from, to } = d.view, within = (s, e) => e >= from && s <= to;
    const kinds = [...new Set(d.rows.flatMap(r => r.entries.map(e => e.kind)))];
    const parts = kinds.map(k => ({ name: k, colour: d.colours[k] }));
    if (d.rows.some(r => r.exposed && r.exposed.length))
        parts.push({ name: 'exposed: compute waits for it', colour: BARE });
    const c = await drawn(box, { kind: 'spans', title: 'The step on its streams: compute above communication', x: { unit: 'seconds' },
        range: [from, to], parts, rows: d.rows.map(r => ({ name: r.name, main: Boolean(r.main) })),
        spans: d.rows.flatMap((r, i) => [...r.entries.filter(e => within(e.s, e.e)).map(e => [i, d.colours[e.kind], e.s, e.e]),
            ...(r.exposed || []).filter(([s, e]) => within(s, e)).map(([s, e]) => [i, BARE, s, e])]) });
    if (!c)
        return;
    const show = (a, w) => {
        d.view.from = Math.max(0, Math.min(d.end_s - w, a));
        d.view.to = d.view.from + w;
        chart_streams(box, d);
    };
    const zoom = (f, k) => {
        const now = d.view.to - d.view.from, w = Math.min(d.end_s, Math.max(d.end_s / 5000, now * k));
        show(d.view.from + f * (now - w), w);
    };
    const pan = by => show(d.view.from + by, d.view.to - d.view.from);
    c.s.addEventListener('wheel', e => { if (e.ctrlKey || e.shiftKey || d.view.to - d.view.from < d.end_s) {
        e.preventDefault(); zoom(fraction(c, e), e.deltaY > 0 ? 1.4 : 1 / 1.4); } }, { passive: false });
    c.s.addEventListener('dblclick', e => zoom(fraction(c, e), 1 / 3));
    c.s.addEventListener('keydown', e => {
        const w = d.view.to - d.view.from, act = { '+': () => zoom(0.5, 1 / 1.5), '=': () => zoom(0.5, 1 / 1.5), '-': () => zoom(0.5, 1.5),
            '0': () => zoom(0, 1e9),
            ArrowLeft: () => pan(-w / 8), ArrowRight: () => pan(w / 8) }[e.key];
        if (act && !e.ctrlKey && !e.altKey) {
            e.preventDefault();
            act();
        }
    });
    d.zoom = k => zoom(0.5, k);
    streams_pointer(c, d, from, to, pan);
}

// Dragging moves; over an entry its words are shown.  The picture is anew at every move: where a drag is, the box knows.
function streams_pointer(c, d, from, to, pan) {
    const box = c.box, x = t => c.plot.x + c.plot.w * (t - from) / (to - from), rows = c.s.dataset.rows.split(' ').map(Number);
    c.s.addEventListener('pointerdown', e => { box.held = e.clientX; });
    c.s.addEventListener('pointerup', () => { box.held = null; });
    c.s.addEventListener('pointerleave', () => { box.held = null; c.tip.hidden = true; });
    c.s.addEventListener('pointermove', e => {
        const r = c.s.getBoundingClientRect(), py = (e.clientY - r.top) * c.height / r.height, t = from + fraction(c, e) * (to - from);
        const seen = d.view.to - d.view.from;       // which may be on its way yet
        if (typeof box.held === 'number' && e.buttons && Math.abs(e.clientX - box.held) > 6 && seen < d.end_s) {
            const by = (box.held - e.clientX) / r.width * c.width / c.plot.w * seen;
            box.held = e.clientX;
            return pan(by);
        }
        const i = d.rows.findIndex((_, k) => py >= rows[2 * k] && py <= rows[2 * k] + rows[2 * k + 1]), row = d.rows[i],
            slack = (to - from) / c.plot.w, below = i >= 0 && rows[2 * i] + rows[2 * i + 1] + 6;
        const hit = row && (row.entries.find(q => q.s <= t && q.e >= t) || row.entries.find(q => q.s - slack <= t && q.e + slack >= t));
        const bare = row && !hit && (row.exposed || []).find(q => q[0] <= t && q[1] >= t);
        if (hit)
            tip_show(c, x(t), below, [{ words: hit.words, head: true },
                { words: `${hit.kind}, ${seconds_words(hit.e - hit.s)}`, colour: d.colours[hit.kind] },
                `from ${seconds_words(hit.s)}`]);
        else if (bare)
            tip_show(c, x(t), below, [{ words: 'exposed', head: true },
                `compute waits ${seconds_words(bare[1] - bare[0])} for communication`]);
        else
            c.tip.hidden = true;
    });
}

// ---- bars ----

// [{ name, value, words, colour, low, high }] below each other, with intervals where they are known.
const chart_bars = (box, bars, title) => drawn(box, { kind: 'bars', title, bars: bars.map(b => ({ label: b.name, words: b.words,
    value: b.value, colour: b.colour ?? 4, low: b.low ?? null, high: b.high ?? null })) });

// ---- points with intervals, and curves ----

const form_of = marks => (marks || '').split(' ').reduce((sum, m) => sum + (FORMS[m] || 0), 0);

// { points: [{ x, y, low, high, words: [lines], mark, pick }], limit, x_label, y_label }: time against memory.  As drawn().
async function chart_plans(box, d) {
    const other = 64;           // a choice like any other
    const c = await drawn(box, { kind: 'points', title: d.label, close: true, x: { label: d.x_label, unit: 'bytes' },
        y: { label: d.y_label, unit: 'seconds' },
        levels: d.limit ? [{ at: d.limit, words: `usable ${bytes_words(d.limit)}`, look: 'limit', axis: 'x' }] : [],
        series: [{ colour: 0, spots: d.points.map(p => [p.x, p.y, p.low ?? null, p.high ?? null, form_of(p.mark) || other]) }] });
    if (!c)
        return null;
    for (const g of c.s.querySelectorAll('g.point')) {
        const p = d.points[Number(g.dataset.at.split('.')[1])], r = g.querySelector('.reach');
        g.setAttribute('class', 'point ' + (p.mark || ''));
        g.setAttribute('tabindex', 0);
        g.setAttribute('role', 'button');
        g.setAttribute('aria-label', p.words.join(', '));
        const show = () => tip_show(c, Number(r.getAttribute('cx')), Number(r.getAttribute('cy')) + 12,
            p.words.map((w, i) => ({ words: w, head: !i })));
        g.addEventListener('pointerenter', show);
        g.addEventListener('focus', show);
        for (const off of ['pointerleave', 'blur'])
            g.addEventListener(off, () => { c.tip.hidden = true; });
        g.addEventListener('click', p.pick);
        g.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); p.pick(); } });
    }
    return c;
}

// { points: [{ name, y, low, high, words: [lines], now, bad }], y_label }: at even distances.  Only neighbours are joined.
async function chart_curve(box, d) {
    const c = await drawn(box, { kind: 'points', title: d.label, band: true, x: { unit: 'count' }, y: { label: d.y_label, unit: 'count' },
        ticks: d.points.map((p, i) => ({ at: i, name: p.name, below: p.bad, now: p.now })),
        series: [{ colour: 0, line: true, spots: d.points.map((p, i) => [i, p.y, p.low ?? null, p.high ?? null,
            p.y === null ? 0 : form_of(p.bad ? 'bad' : p.now ? 'shown' : '')]) }] });
    if (!c)
        return;
    const n = d.points.length, [from, to] = c.s.dataset.x.split(' ').map(Number), x = i => c.plot.x + c.plot.w * (i - from) / (to - from);
    walk(c, f => {
        const i = Math.min(n - 1, Math.max(0, Math.round(from + f * (to - from))));
        tip_show(c, x(i), c.plot.y + 30, d.points[i].words.map((w, k) => ({ words: w, head: !k })));
    }, () => { c.tip.hidden = true; });
}

// ---- a figure as a file ----

// As text, white, with its title and with the light page's colours in the place of variables.
const svg_file = async s => (await answers.ask('draw', { ...s.request, file: true, width: Math.max(700, s.viewBox.baseVal.width) },
    { always: true })).doc.svg;
