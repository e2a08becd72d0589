// learn.js -- ten lessons: a short text, a slider, and a picture whose numbers the library computes in front of the reader.
'use strict';

const base = (more, set) => ({ plan: { dpx_plan: 1, model: 'llama-3.1-8b', cluster: '8xh100', strategy: 'ddp', dialect: 'paper',
    precision: 'bf16', seq: 2048,
    micro_batch: 1, accumulation: 1, recompute: 'full', ...more }, ...(set ? { set } : {}) });
const states = d => d.memory.params_bytes + d.memory.grads_bytes + d.memory.optimizer_bytes;
const gib = (name, n, colour) => ({ name, value: n, words: bytes_words(n), colour });
const sec = (name, s, colour) => ({ name, value: s, words: seconds_words(s), colour });
// A step, with its interval.
const step = (name, t, colour) => ({ ...sec(name, t.step_s, colour), low: t.low_s, high: t.high_s });
const nodes = n => n <= 8 ? `${n}xh100` : `${n / 8}x8xh100`;
const ranks = [1, 2, 4, 8, 16, 64, 256, 1024];

// ask(value): the plans to evaluate; show(documents, value): the bars.
const LESSONS = [
    { title: '16 bytes a parameter', slide: 'model', values: ['gpt2', 'llama-3.2-1b', 'llama-3.1-8b', 'llama-3.1-70b'], at: 2,
        text: 'Mixed precision with Adam keeps 2 bytes of each parameter, 2 of its gradient, and 12 for the optimizer: a copy in '
            + '32 bits, a mean and a mean of squares. '
            + 'That is 16 bytes whatever the model: a GPU of 80 GB holds 5 billion parameters, before a single activation.',
        ask: v => [base({ model: v })],
        show: ([d]) => [['parameters', 'params_bytes', 0], ['gradients', 'grads_bytes', 1], ['optimizer', 'optimizer_bytes', 2]]
            .map(([name, key, colour]) =>
            ({ name, colour, value: d.memory[key],
                words: `${bytes_words(d.memory[key])}, ${(d.memory[key] / d.model.params).toFixed(2)} bytes each` }))
            .concat({ name: 'together', colour: 9, value: states(d),
                words: `${bytes_words(states(d))}, ${(states(d) / d.model.params).toFixed(2)} bytes each` }) },
    { title: 'ZeRO-1, 2, 3: what N GPUs share', slide: 'GPUs', values: ranks, at: 5,
        text: 'Data parallelism keeps everything on every GPU. ZeRO-1 shares the 12 bytes of the optimizer, ZeRO-2 the gradients '
            + 'too, ZeRO-3 (FSDP) everything. '
            + 'On 64 GPUs the 16 bytes become 4.2, 2.2 and 0.25. More GPUs lower only what is shared.',
        ask: v => ['ddp', 'zero1', 'zero2', 'zero3'].map(strategy => base({ strategy, cluster: nodes(v) })),
        show: docs => docs.map((d, i) => ({ name: ['data parallel', 'ZeRO-1', 'ZeRO-2', 'ZeRO-3'][i], colour: i, value: states(d),
            words: `${bytes_words(states(d))}, ${(states(d) / d.model.params).toFixed(2)} bytes each` })) },
    { title: 'What it costs: 2 or 3 model sizes', slide: 'GPUs', values: ranks.slice(1), at: 2,
        text: 'An all-reduce is a reduce-scatter and an all-gather: each GPU sends the model twice, nearly. ZeRO-1 and 2 send as '
            + 'much as plain data parallelism. '
            + 'ZeRO-3 gathers parameters for forward and again for backward: three times. DeepSpeed\'s ZeRO-1 all-reduces and '
            + 'then gathers: three as well.',
        ask: v => [['ddp', 'paper'], ['zero1', 'paper'], ['zero3', 'paper'], ['zero1', 'deepspeed']]
            .map(([strategy, dialect]) => base({ strategy, dialect, cluster: nodes(v) })),
        show: docs => docs.map((d, i) => ({ name: ['data parallel', 'ZeRO-1, the paper\'s', 'ZeRO-3, the paper\'s',
            'ZeRO-1, DeepSpeed\'s'][i], colour: 4,
            value: d.comm.sent_bytes_per_rank,
                words: `${bytes_words(d.comm.sent_bytes_per_rank)}, `
                    + `${(d.comm.sent_bytes_per_rank / 2 / d.model.params).toFixed(2)} models` })) },
    { title: 'A server, or a ring', slide: 'GPUs', values: ranks.slice(1, 6), at: 2,
        text: 'A parameter server takes every worker\'s gradients and sends every worker the result: its one link carries N times '
            + 'the model. On a ring everybody sends '
            + '2 (N-1)/N of it, whatever N is. (dpxplan collectives shows trees beside them: fewer steps, for short messages.)',
        ask: v => [base({ strategy: 'dp', cluster: nodes(v) }), base({ cluster: nodes(v) })],
        show: ([s, r]) => [sec('server: exposed', s.time.exposed_comm_s, 1), sec('ring: exposed', r.time.exposed_comm_s, 0),
            step('server: a step', s.time, 1), step('ring: a step', r.time, 0)] },
    { title: 'Prefetch', slide: 'GPUs', values: [2, 4, 8, 16, 32, 64], at: 3,
        text: 'Sharded parameters must come before a block can compute. Gathered while the block before computes, they cost '
            + 'nothing as long as the network is faster than '
            + 'the GPU. Without prefetch the GPU waits at every block of backward.',
        ask: v => ['BACKWARD_PRE', 'NO_PREFETCH'].map(p => base({ strategy: 'fsdp', dialect: 'torch-fsdp1', cluster: nodes(v) },
            { 'fsdp.backward_prefetch': p })),
        show: ([a, b]) => [sec('with: exposed', a.time.exposed_comm_s, 0), sec('without: exposed', b.time.exposed_comm_s, 1),
            step('with: a step', a.time, 0), step('without: a step', b.time, 1)] },
    { title: 'Recompute: memory for time', slide: 'tokens a sample', values: [1024, 2048, 4096, 8192, 16384], at: 2,
        text: 'Backward needs what forward computed. Kept, it grows with every token; recomputed block by block, only each '
            + 'block\'s input is kept, and forward is paid twice: '
            + 'a third more work.',
        ask: v => ['none', 'full'].map(recompute => base({ strategy: 'fsdp', dialect: 'torch', seq: v, recompute })),
        show: ([a, b]) => [gib('kept: peak', a.memory.peak_bytes, 3), gib('recomputed: peak', b.memory.peak_bytes, 0),
            step('kept: a step', a.time, 3), step('recomputed: a step', b.time, 0)], split: 2 },
    { title: 'The bubble', slide: 'micro-batches', values: [1, 2, 4, 8, 16, 32], at: 2,
        text: 'A pipeline of 4 stages fills and drains in every step: (4 - 1) of (m + 4 - 1) slots stay empty. With one '
            + 'micro-batch three quarters of the machine wait; '
            + 'with 4, three sevenths; with 32, 9 %. The optimizer and the sum of gradients are no slots: of the whole step it is less.',
        ask: v => [base({ strategy: 'ddp', dialect: 'paper', accumulation: v, parallel: { pipeline: 4 } })],
        show: ([d], v) => [step('a step', d.time, 0), { name: 'bubble', value: d.time.bubble_s || 0, colour: 1,
            words: `${seconds_words(d.time.bubble_s || 0)}, ${(100 * (d.time.bubble_s || 0) / d.time.step_s).toFixed(1)} %; `
                + `3/(m+3) is ${(300 / (v + 3)).toFixed(1)} %` }] },
    { title: 'Reserved is more than allocated', slide: 'tokens a sample', values: [1024, 2048, 4096, 8192, 16384], at: 3,
        text: 'PyTorch does not give memory back to the GPU: its allocator keeps blocks for the next request of their size. '
            + 'nvidia-smi shows what is reserved, with the CUDA context '
            + 'on top; a run dies when that is full, though less is allocated.',
        ask: v => [base({ strategy: 'fsdp', dialect: 'torch', seq: v, recompute: 'none' })],
        show: ([d]) => [gib('allocated', d.memory.allocated_peak_bytes, 0), gib('reserved', d.memory.reserved_peak_bytes, 4),
            gib('with the context', d.memory.driver_bytes, 9), gib('usable', d.memory.available_bytes, 1)] },
    { title: 'Offload', slide: 'GPUs', values: [1, 2, 4, 8], at: 2,
        text: 'What a step needs only once can wait in the host\'s memory: with DeepSpeed the optimizer\'s 12 bytes and its work. '
            + 'The GPU is emptier; the step pays for the way '
            + 'over PCIe and for a slower AdamW.',
        ask: v => ['none', 'cpu'].map(device => base({ strategy: 'zero2', dialect: 'deepspeed', model: 'llama-3.2-1b',
            cluster: nodes(v) }, { 'deepspeed.offload_optimizer.device': device })),
        show: ([a, b]) => [gib('here: peak', a.memory.peak_bytes, 0), gib('offloaded: peak', b.memory.peak_bytes, 2),
            step('here: a step', a.time, 0), step('offloaded: a step', b.time, 2)], split: 2 },
    { title: 'Hybrid sharding', slide: 'Gbit/s from node to node', values: [100, 200, 400, 800, 1600, 3200], at: 2,
        text: 'Gathering over 4 nodes goes through the network at every block. Sharded within a node, and copied from node to '
            + 'node, only gradients cross it, once. '
            + 'The price is memory: a node holds the whole model. Where the network is fast enough to hide the gathers, there is '
            + 'nothing to gain.',
        ask: v => [32, 8].map(shard_group => base({ strategy: 'fsdp', dialect: 'torch', cluster: '4x8xh100', shard_group },
            { network: v })),
        show: ([a, b]) => [gib('all share: peak', a.memory.peak_bytes, 0), gib('a node shares: peak', b.memory.peak_bytes, 2),
            sec('all share: exposed', a.time.exposed_comm_s, 0), sec('a node shares: exposed', b.time.exposed_comm_s, 2)], split: 2 },
];

async function lesson_show(l, asker, at, box, words) {
    const v = l.values[at], docs = [];
    box.classList.add('old');
    for (const request of l.ask(v)) {
        const a = await asker.ask('eval', request, { always: true });
        if (!a || l.now !== at)
            return;                 // the slider went on
        if (!a.doc)
            return void (words.textContent = a.why);
        docs.push(a.doc);
    }
    words.textContent = '';
    const bars = l.show(docs, v), top = l.split || bars.length;
    await chart_bars(box.children[0], bars.slice(0, top), l.title);
    box.children[1].hidden = top === bars.length;
    if (top < bars.length)
        await chart_bars(box.children[1], bars.slice(top), l.title + ': time');
    box.classList.remove('old');
}

// Once; each lesson is computed when its turn comes.
async function learn_open(main) {
    if (main.childElementCount)
        return;
    const asker = new Asker();
    for (const [i, l] of LESSONS.entries()) {
        const out = el('output', {}, String(l.values[l.at])), slide = el('input',
            { type: 'range', min: 0, max: l.values.length - 1, step: 1, value: l.at, ariaLabel: l.slide });
        const box = el('div', {}, el('div', { className: 'box' }), el('div', { className: 'box' })),
            words = el('p', { className: 'wrong' });
        main.append(el('section', {}, el('h2', {}, `${i + 1}. ${l.title}`),
            el('div', { className: 'lesson' }, el('div', {}, el('p', {}, l.text), el('label', {}, l.slide + ': ', out, slide),
            words), box)));
        const show = () => { l.now = Number(slide.value); out.textContent = l.values[l.now]; return lesson_show(l, asker, l.now,
            box, words); };
        slide.addEventListener('input', show);
        l.show_again = show;
    }
    for (const l of LESSONS)
        await l.show_again();
    addEventListener('resize', later(() => { if (!main.hidden) LESSONS.forEach(l => l.show_again()); }, 200));
}
