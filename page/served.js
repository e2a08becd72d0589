// served.js -- in the place of a worker, where dpxplan serve gave out the page: asks it.  The same messages as worker.js.
'use strict';

class Served {
    constructor() { this.ends = new AbortController(); }

    async postMessage({ id, open, call, request }) {
        const hear = data => this.ends.signal.aborted || this.onmessage({ data: { id, ...data } });
        try {
            const last = await this.ask(open === undefined && call ? call : 'list', request ?? '{"what": "strategies"}', hear);
            hear(call ? last : { version: JSON.parse(last.answer).version });
        } catch (e) {
            hear({ status: 1, answer: 'dpxplan serve does not answer: ' + e.message });
        }
    }

    // Lines of the answer as they come; the last one.
    async ask(call, request, hear) {
        const r = await fetch('/ask/' + call, { method: 'POST', body: request, signal: this.ends.signal,
            headers: { 'Content-Type': 'application/json', 'X-Dpx-Token': Served.token } });
        if (!r.ok)
            throw new Error((await r.text()).trim());
        const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ''; ;) {
            const { value, done } = await reader.read();
            const lines = (rest + (value ?? '')).split('\n');
            rest = lines.pop();
            for (const line of lines.filter(Boolean)) {
                const told = JSON.parse(line);
                if ('status' in told)
                    return told;
                hear(told);
            }
            if (done)
                throw new Error('it ended before the answer');
        }
    }

    terminate() { this.ends.abort(); }
}
Served.token = new URLSearchParams(location.search).get('token') ?? '';

// What was run here, each beside its prediction; a click asks for its plan as dpx predicts it now.
Served.show_runs = (doc, look) => {
    const told = (measured, predicted, words) => [measured === null ? '' : words(measured), predicted === null ? '' : words(predicted)];
    section('runs').hidden = false;
    say_in('runs', doc.runs.length ? `${doc.runs.length} of ${doc.db}, the newest first.` : 'None yet: dpxrun records them.');
    section('runs').querySelector('.table').replaceChildren(table(['run', 'plan', 'ended', 'step', 'predicted', 'held', 'predicted'],
        doc.runs.map(r => {
            const b = el('button', { type: 'button', title: r.label }, r.words || r.strategy);
            b.disabled = !r.plan || !r.words;
            b.addEventListener('click', () => look(r.plan));
            return { cells: [String(r.id), b, `${r.outcome}, ${r.steps} steps on ${r.world_size} of ${r.host || 'a host'}`,
                ...told(r.step_s, r.predicted_s, seconds_words), ...told(r.held_bytes, r.predicted_held_bytes, bytes_words)] };
        }), [3, 4, 5, 6]));
    tools('runs', () => [['run', 'model', 'plan', 'outcome', 'steps', 'step s', 'p10 s', 'p90 s', 'predicted s', 'low s', 'high s', 'held bytes',
        'predicted held bytes'], ...doc.runs.map(r => [r.id, r.model, r.label, r.outcome, r.steps, r.step_s, r.p10_s, r.p90_s, r.predicted_s,
        r.low_s, r.high_s, r.held_bytes, r.predicted_held_bytes])]);
};
