// picture.js -- the first picture of README.md: the page as it stands a moment after it was opened: picture.js PAGE.HTML docs/page.png.
'use strict';
const path = require('path');
const { open_browser, sleep } = require('./chromium.js');
const [, , html, to] = process.argv;

(async () => {
    const browser = await open_browser();
    try {
        const page = await browser.page('file://' + path.resolve(html), { width: 1280, height: 1000 });
        await page.until("state.by === 'search' && !document.getElementById('fewest').hidden", 300);
        await page.until("!document.querySelector('#plan.old, #whatif.old')", 60);
        await sleep(500);
        await page.shot(to, false);
    } finally {
        browser.close();
    }
})();
