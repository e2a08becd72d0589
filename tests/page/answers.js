// answers.js -- asks the page's library what standard input asks, as answers.c asks libdpx: answers.js DPX.JS FITS-FOLDER.
'use strict';
const fs = require('fs'), path = require('path');

// The library in this process, as the page's worker has it.
async function library_of(js, fits) {
    const m = await require(path.resolve(js))({ wasmBinary: fs.readFileSync(js.replace(/js$/, 'wasm')),
        preRun: [l => { l.ENV.DPX_MEASURED = '/measured'; }],
        print() {}, printErr() {} });
    m.FS.mkdir('/measured');
    for (const name of fs.readdirSync(fits).filter(n => n.endsWith('.fits')))
        m.FS.writeFile('/measured/' + name, fs.readFileSync(path.join(fits, name)));
    return m;
}

function ask(m, call, request) {
    const n = m.lengthBytesUTF8(request) + 1, at = m._malloc(n), out = m._malloc(4);
    m.stringToUTF8(request, at, n);
    const status = call === 'search' || call === 'sweep' ? m['_dpx_' + call](at, 0, out) : m['_dpx_' + call](at, out);
    const p = m.HEAPU32[out >> 2], answer = m.UTF8ToString(p);
    [p, out, at].forEach(q => m._dpx_free(q));
    return { status, answer };
}

module.exports = { library_of, ask };

if (require.main === module)
    library_of(process.argv[2], process.argv[3]).then(m => {
        for (const line of fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
            const tab = line.indexOf('\t'), { status, answer } = ask(m, line.slice(0, tab), line.slice(tab + 1));
            process.stdout.write(`${status}\t${answer.replace(/\n/g, ' ')}\n`);
        }
    });
