// words.js -- numbers as the programs write them: bytes as base/size.c, times and rates as sim/plan/answer_words.c;
// tests/page/test_page.sh finds the page's words in dpxplan's text.
'use strict';

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

// [number, unit]: "1024.00" of a unit is never said.
function bytes_scaled(n) {
    let x = Math.abs(n), u = 0;
    while (u < BYTE_UNITS.length - 1 && x >= (u ? 1024 - 0.005 : 1024)) {
        x /= 1024;
        u++;
    }
    return [n < 0 ? -x : x, BYTE_UNITS[u], u];
}

function bytes_words(n) {
    const [x, unit, u] = bytes_scaled(n);
    return `${x.toFixed(u ? 2 : 0)} ${unit}`;
}

// Three digits, and never an exponent.
const three_digits = x => Math.abs(x) < 999.5 ? String(Number(x.toPrecision(3))) : x.toFixed(0);

// Below a millisecond only pictures have times.
const seconds_unit = s => s >= 7200 ? [3600, 'hours'] : s >= 1 ? [1, 's'] : s >= 1e-3 ? [1e-3, 'ms'] : [1e-6, 'µs'];

function seconds_words(s) {
    const [per, unit] = seconds_unit(Math.abs(s));
    return s === 0 ? '0 s' : `${three_digits(s / per)} ${unit}`;
}

// "5.74 to 8.36 s": the unit is that of the time between them.
function interval_words(low, s, high) {
    const [per, unit] = seconds_unit(s);
    return `${three_digits(low / per)} to ${three_digits(high / per)}\u00a0${unit}`;
}

// "77.1k"
function count_words(n) {
    const [x, letter] = n < 1e4 ? [n, ''] : n < 1e6 ? [n / 1e3, 'k'] : n < 1e9 ? [n / 1e6, 'M'] : [n / 1e9, 'B'];
    return three_digits(x) + letter;
}

const share_words = part => `${(100 * part).toFixed(1)} %`;

if (typeof module !== 'undefined')
    module.exports = { bytes_words, seconds_words, interval_words, count_words };
