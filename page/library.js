// library.js -- asks the library in a worker.
//
//     const asker = new Asker();
//     const { status, doc, why, late } = await asker.ask('eval', { plan });
//
// doc: the answer, of status 0 or 3; why: a line otherwise.  Of questions that wait only the newest is asked, the others
// give null; late: a newer one waits already.  { always: true }: asked in any case.  stop() ends what is under way.
'use strict';

const Library = {
    async load() {
        if (typeof Served !== 'undefined')
            return;
        const bytes = base64_bytes(document.getElementById('library').textContent);
        this.module = await WebAssembly.compile(bytes);
        this.source = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], { type: 'text/javascript' }));
        this.fits = [...document.querySelectorAll('script[data-fits]')].map(s => [s.dataset.fits, s.textContent.trimStart()]);
    },
};

function base64_bytes(text) {
    const raw = atob(text.trim()), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++)
        bytes[i] = raw.charCodeAt(i);
    return bytes;
}

class Asker {
    constructor() {
        this.next = 1;
        this.waiting = new Map();
        this.start();
    }

    start() {
        this.worker = typeof Served !== 'undefined' ? new Served() : new Worker(Library.source);
        this.worker.onmessage = e => this.heard(e.data);
        this.worker.onerror = e => this.heard({ id: [...this.waiting.keys()][0], status: 1, ended: true, answer: e.message });
        this.busy = 0;
        this.opened = this.post({ open: Library.module, fits: Library.fits });
    }

    post(message, on_progress) {
        const id = this.next++;
        return new Promise(done => {
            this.waiting.set(id, { done, on_progress });
            this.worker.postMessage({ id, ...message });
        });
    }

    heard(m) {
        const w = this.waiting.get(m.id);
        if (!w)
            return;
        if (m.done !== undefined)
            return void (w.on_progress && w.on_progress(m.done, m.total));
        this.waiting.delete(m.id);
        this.size = m.size ?? this.size;        // bytes of the library's memory
        w.done(m);
        if (m.ended && this.worked)
            this.stop();            // and another is there for the next question
        this.worked = !m.ended;
    }

    // Whatever is asked is given up; questions that wait get null.
    stop() {
        this.worker.terminate();
        this.queued = null;
        const left = [...this.waiting.values()];
        this.waiting.clear();
        this.start();
        left.forEach(w => w.done(null));
    }

    async ask(call, request, { on_progress, always } = {}) {
        const mine = {};
        if (!always)
            this.queued = mine;
        while (this.busy)
            await this.busy;
        if (!always && this.queued !== mine)
            return null;
        let free;
        const turn = this.busy = new Promise(f => { free = f; });
        const answer = await this.post({ call, request: JSON.stringify(request) }, on_progress);
        if (this.busy === turn)
            this.busy = 0;
        free();
        if (!answer)
            return null;
        const ok = answer.status === 0 || answer.status === 3;
        return { status: answer.status, doc: ok ? JSON.parse(answer.answer) : null, text: answer.answer, why: ok ? '' : answer.answer,
            late: !always && this.queued !== mine };
    }
}
