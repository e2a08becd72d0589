/* chart_json.h -- a chart as JSON, drawn: what the planner's page asks for, in the browser of the library built for it, of `dpxplan serve`
 * of that program.
 *
 *     char *answer;
 *     int status = chart_answer("{\"kind\": \"points\", \"width\": 600, \"series\": [{\"spots\": [[1, 2], [2, 4]]}]}", &answer);
 *
 * A request has "kind" (points, areas, bars, spans) and "width" in pixels, and may have:
 *   id, title, caption, file (true: CHART_FILE), close, band, range [from, to]
 *   x, y      {label, unit, log}; unit: bytes, seconds, count; none: no axis
 *   ticks     [{at, name, below, now}]
 *   series    [{name, colour, line, spots: [[x, y, low, high, form, label]]}]; null: not there.  line: joined
 *   areas     {names: [category], t: [s], v: [[of each]], until, peak}
 *   levels    [{at, words, look, axis}]; look: limit, dotted, thin; axis: "x" or "y"
 *   bars      [{label, words, value, colour, low, high}]
 *   parts     [{name, colour}]; rows: [{name, main}]; spans: [[row, colour, from, to]], colour -1: bare */
#ifndef DPX_CHART_JSON_H
#define DPX_CHART_JSON_H

/* *answer, to be given to free(): {"svg": ...} and 0; or one line, why the request is wrong, and 2. */
int chart_answer(const char *request, char **answer);

#endif
