/*
 * worker_list.h - lists of workers from outside the configuration, complete and checked.
 *
 * A list is a configuration of which only `workers` and `worker_count` are filled (0 to
 * KVW_MAX_WORKERS); kvw_config_destroy frees it. Pure functions.
 */
#ifndef KVW_WORKER_LIST_H
#define KVW_WORKER_LIST_H

#include <stdio.h>

#include "config/config.h"

#define KVW_WORKER_FILE_MAX_BYTES (4u << 20)

/*
 * Reads the text of a worker file: YAML or JSON, either
 *
 *     workers:
 *       - url: http://10.0.0.7:8000      # any key of a worker, see config/REFERENCE.md
 *
 * or the dynamic configuration of vLLM production-stack, as its JSON or its YAML form. A member
 * without meaning here becomes a line of `notes`. Mistakes become lines of `errors` as in config.h:
 * KVW_EINVAL, and the whole file is refused. `name` stands for the file. An empty list must be
 * written (`workers: []`): an empty text is a mistake, since a file may be cut while it is written.
 * KVW_ENOMEM.
 */
enum kvw_err kvw_worker_file_parse(const char *name, const char *text, size_t len, FILE *errors,
	FILE *notes, struct kvw_config **out) KVW_MUST_CHECK;

/* Makes a list with one worker for each URL, and all other keys at their defaults. The URLs must
 * differ, and be at most KVW_MAX_WORKERS. KVW_EINVAL: one of the texts is not a URL; KVW_ENOMEM. */
enum kvw_err kvw_worker_list_of_urls(
	const char *const *urls, size_t count, struct kvw_config **out) KVW_MUST_CHECK;

#endif
