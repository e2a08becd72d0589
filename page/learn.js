// learn.js -- lessons.
'use strict';
function learn_open() {}
