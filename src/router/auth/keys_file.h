/*
 * keys_file.h - reads the file of clients' keys (`auth.keys_file`), and checks it as a whole.
 *
 * Each mistake is a line in `errors`, in the form that config/config.h describes. Any thread; no
 * state.
 */
#ifndef KVW_KEYS_FILE_H
#define KVW_KEYS_FILE_H

#include <stdio.h>

#include "auth/keyring.h"

/* most bytes of a file; 200,000 keys need half of that */
#define KVW_KEYS_FILE_MAX_BYTES (UINT32_C(64) << 20)

/* KVW_EINVAL: the text has mistakes, all of which are in `errors`; KVW_ENOMEM. */
enum kvw_err kvw_keys_file_parse(const char *name, const char *text, size_t len, FILE *errors,
	struct kvw_keyring **out) KVW_MUST_CHECK;

/* Does the same for a file. KVW_EIO: the file cannot be read; `errors` has the cause. */
enum kvw_err kvw_keys_file_load(
	const char *path, FILE *errors, struct kvw_keyring **out) KVW_MUST_CHECK;

/* Returns whether the text may be the name of a key or a tenant. */
bool kvw_keys_file_name_good(const char *name);

#endif
