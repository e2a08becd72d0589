/* words.h -- what the database calls kernels, passes and overheads. */
#ifndef DPX_WORDS_H
#define DPX_WORDS_H

/* Ended by NULL; in the order of enum kernel_fn, kernel_class, measured_pass. */
extern const char *const fn_words[], *const class_words[], *const pass_words[];
/* What the executor itself takes: struct measured_overheads, and measured_device's alone and together. */
enum own_word {
    OWN_ISSUE_KERNEL, OWN_ISSUE_ENTRY, OWN_HANDOVER, OWN_WAKE, OWN_COLD, OWN_STEP, OWN_ALONE, OWN_TOGETHER, NOWN_WORD
};
extern const char *const own_words[];
/* In the order of enum traced_issue. */
extern const char *const traced_words[];

/* Index of a word, -1 where it is none of them. */
int word_find(const char *const *words, const char *word);

#endif
