/*
 * keys_file.h - the file of clients' keys (`auth.keys_file`): read whole, checked whole.
 *
 * Each mistake is a line in `errors`, in config/config.h's form. Any thread; no state.
 */
#ifndef KVW_KEYS_FILE_H
#define KVW_KEYS_FILE_H

#include <stdio.h>

#include "auth/keyring.h"

#define KVW_KEYS_FILE_MAX_BYTES (UINT32_C(64) << 20) /* 200,000 keys need a half of it */

/* KVW_EINVAL: it has mistakes, all in `errors`; KVW_ENOMEM. */
enum kvw_err kvw_keys_file_parse(const char *name, const char *text, size_t len, FILE *errors,
	struct kvw_keyring **out) KVW_MUST_CHECK;

/* The same for a file. KVW_EIO: it cannot be read; `errors` has the cause. */
enum kvw_err kvw_keys_file_load(
	const char *path, FILE *errors, struct kvw_keyring **out) KVW_MUST_CHECK;

/* Whether the text is a valid name of a key or a tenant. */
bool kvw_keys_file_name_good(const char *name);

#endif
