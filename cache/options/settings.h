/*
 * settings.h - functions on a configuration for the rest of the library and the program `kvtier`,
 * besides the public ones.
 */
#ifndef KVT_SETTINGS_H
#define KVT_SETTINGS_H

#include <stdio.h>

#include "kvtier/kvtier.h"

/*
 * Makes a configuration on which kvt_open may rely. *out is `config` as a whole struct of this
 * build, with defaults for members that an older header lacks; every member is within its range. An
 * invalid member gets its default, and a line "KEY: found ..., expected ..." in *report (NULL if
 * there is none; kvt_text_free). Texts and surroundings are borrowed from `config`; an absent text
 * gets its default. KVT_EINVAL: there were mistakes, and *out is usable. KVT_ENOTSUP: the caller
 * was compiled for another ABI; *out is unchanged. KVT_ENOMEM.
 */
enum kvt_status kvt_settings_check(
	const struct kvt_config *config, struct kvt_config *out, char **report) KVT_MUST_CHECK;

/* Gives defaults to every text that is NULL, and to every number that is 0 although its range
 * begins above 0. The texts are static. */
void kvt_settings_fill(struct kvt_config *config);

/* Makes a copy with its own texts, which kvt_config_finish frees. KVT_ENOMEM. */
enum kvt_status kvt_settings_copy(
	const struct kvt_config *from, struct kvt_config *out) KVT_MUST_CHECK;

/* Sets every text to NULL, in a copy that outlives the texts of its caller. */
void kvt_settings_forget_texts(struct kvt_config *config);

/* Print REFERENCE.md, and a YAML file with every key and its default. */
void kvt_settings_reference(FILE *out);
void kvt_settings_example(FILE *out);

/* Prints "KEY: VALUE" for every key, in sections as in the file, without user and password of
 * l2.url. For `kvtier check`. */
void kvt_settings_print(const struct kvt_config *config, FILE *out);

#endif
