/*
 * settings.h - the configuration's functions for the rest of the library and the program `kvtier`,
 * beyond the public ones.
 */
#ifndef KVT_SETTINGS_H
#define KVT_SETTINGS_H

#include <stdio.h>

#include "kvtier/kvtier.h"

/*
 * Makes a configuration on which kvt_open may rely: *out is `config` as a whole struct of this
 * build (defaults widen one compiled with an older header), in which every member is within its
 * range; an invalid member has its default, and a line "KEY: found ..., expected ..." in *report
 * (NULL if there was none; kvt_text_free). Texts and surroundings are borrowed from `config`; an
 * absent text is its default. KVT_EINVAL: there were mistakes, *out is usable. KVT_ENOTSUP: the
 * caller was compiled for another ABI; *out is untouched. KVT_ENOMEM.
 */
enum kvt_status kvt_settings_check(
	const struct kvt_config *config, struct kvt_config *out, char **report) KVT_MUST_CHECK;

/* Gives its default to every text that is NULL and every number that is 0 where its range begins
 * above 0. The texts are static. */
void kvt_settings_fill(struct kvt_config *config);

/* Makes a copy with texts of its own, until kvt_config_finish. KVT_ENOMEM. */
enum kvt_status kvt_settings_copy(
	const struct kvt_config *from, struct kvt_config *out) KVT_MUST_CHECK;

/* Sets every text to NULL: for a copy that outlives the texts of its caller. */
void kvt_settings_forget_texts(struct kvt_config *config);

/* Print REFERENCE.md, and a YAML file with every key and its default. */
void kvt_settings_reference(FILE *out);
void kvt_settings_example(FILE *out);

/* Prints "KEY: VALUE" for every key, sections as in the file, without user and password of l2.url.
 * For `kvtier check`. */
void kvt_settings_print(const struct kvt_config *config, FILE *out);

#endif
