/* tree.h -- for targets whose inputs are documents: libFuzzer changes them by their structure,
 * so that most still parse and what comes after the parser is tested.
 *
 *     const char *const fuzz_words[] = { "\"precision\": \"bf16\"", ..., NULL };
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
 *     {
 *         bool taken = ...;
 *         return fuzz_count(data, size, taken);
 *     }
 *
 * tree.c defines libFuzzer's custom mutator.  JSON: a value is replaced by a nearby or extreme one
 * of its type, by the value of a member of the same name elsewhere, or by another type; members and
 * elements are dropped, repeated, swapped, renamed, added.  Other text: the same with its lines and
 * words.  One change in 32 is of bytes.  Of an input that the target refused, no more are made:
 * a change starts from one that was taken. */
#ifndef DPX_TREE_H
#define DPX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Members to set, as JSON ("\"key\": value"), where the document has one of that name, else beside
 * any other; and words to write into text.  NULL after the last.  Defined by the target. */
extern const char *const fuzz_words[];

/* Counts an input as taken or refused by the parser; the share is printed when the program ends.
 * Returns 0, what a target returns. */
int fuzz_count(const uint8_t *data, size_t size, bool taken);

/* The path of a file in memory that holds the input; the same one each time. */
const char *fuzz_file(const uint8_t *data, size_t size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed);

#endif
