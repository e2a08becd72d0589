// worker.js -- runs the library: one question at a time, as the page sends them.
//
// { open: compiled module, fits: [[name, text]] }  once; then { id, call, request }.  Answers are { id, status, answer },
// and while a search or a sweep lasts { id, done, total }.  To stop one, end the worker.
'use strict';
/* global dpx_module */

let library = null, watch = 0, asking = 0, last = 0;

const watched = { search: true, sweep: true };

// int (*progress)(void *, long long done, long long total) of struct dpx_watch; not more often than ten times a second.
function progress(_data, done, total) {
    const now = Date.now();
    if (now - last >= 100) {
        last = now;
        postMessage({ id: asking, done: Number(done), total: Number(total) });
    }
    return 0;
}

async function open(module, fits) {
    library = await new Promise((done, failed) => dpx_module({
        instantiateWasm(imports, ready) {
            WebAssembly.instantiate(module, imports).then(ready).catch(failed);
            return {};
        },
        preRun: [m => { m.ENV.DPX_MEASURED = '/measured'; }],
        print() {}, printErr() {},
    }).then(done, failed));
    library.FS.mkdir('/measured');
    for (const [name, text] of fits)
        library.FS.writeFile('/measured/' + name, text);
    watch = library._malloc(8);
    library.HEAPU32[watch >> 2] = library.addFunction(progress, 'iijj');
    library.HEAPU32[(watch >> 2) + 1] = 0;
}

function text_at(s) {
    const n = library.lengthBytesUTF8(s) + 1, at = library._malloc(n);
    library.stringToUTF8(s, at, n);
    return at;
}

function ask(call, request) {
    const question = text_at(request), out = library._malloc(4), f = call === 'draw' ? library._chart_answer : library['_dpx_' + call];
    const status = watched[call] ? f(question, watch, out) : f(question, out);
    const at = library.HEAPU32[out >> 2], answer = library.UTF8ToString(at);
    library._dpx_free(at);
    library._dpx_free(out);
    library._dpx_free(question);
    return { status, answer, size: library.HEAPU8.length };
}

async function serve(m) {
    if (m.open) {
        await open(m.open, m.fits);
        return { version: library.UTF8ToString(library._dpx_version()) };
    }
    asking = m.id;
    return ask(m.call, m.request);
}

// In order, one after the other: the library opens before it is asked.
let turn = Promise.resolve();
self.onmessage = e => {
    turn = turn.then(() => serve(e.data)).then(
        answer => postMessage({ id: e.data.id, ...answer }),
        error => postMessage({ id: e.data.id, status: 1, ended: true, answer: 'the library ended: ' + error.message }));
};
