/* words.h -- what the database calls kernels, passes and overheads. */
#ifndef DPX_WORDS_H
#define DPX_WORDS_H

/* Ended by NULL; in the order of enum kernel_fn, kernel_class, measured_pass. */
extern const char *const fn_words[], *const class_words[], *const pass_words[];
/* In the order of struct measured_overheads. */
extern const char *const own_words[];
/* In the order of enum traced_issue. */
extern const char *const traced_words[];

/* Index of a word, -1 where it is none of them. */
int word_find(const char *const *words, const char *word);

#endif
