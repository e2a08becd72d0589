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
