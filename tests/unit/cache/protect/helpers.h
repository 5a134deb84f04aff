/*
 * helpers.h - a file of keys and a sealer over it.
 */
#ifndef KVT_TEST_PROTECT_HELPERS_H
#define KVT_TEST_PROTECT_HELPERS_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protect/seal.h"

#define KEY_A "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef"
#define KEY_B "f0e1d2c3b4a5968778695a4b3c2d1e0fffeeddccbbaa99887766554433221100"

/* What was logged. */
struct logged {
	char text[4096];
};

static inline void keep_line(void *self, uint32_t level, const char *line)
{
	struct logged *logged = self;
	size_t used = strlen(logged->text);

	snprintf(logged->text + used, sizeof(logged->text) - used, "%u %s\n", level, line);
}

static inline void surroundings_start(struct kvt_surroundings *s, struct logged *logged)
{
	struct kvt_config config = {.size = sizeof(config), .log = keep_line, .log_self = logged};

	logged->text[0] = '\0';
	kvt_surroundings_init(s, &config);
}

/* Writes a file of keys; the name is a new one. */
static inline const char *write_keys(const char *text, mode_t mode, char path[64])
{
	FILE *file;

	snprintf(path, 64, "/tmp/kvt-keys-XXXXXX");
	ck_assert_int_ge(close(mkstemp(path)), 0);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
	return path;
}

/* A sealer and what it needs. */
struct sealing {
	struct kvt_surroundings surroundings;
	struct logged logged;
	struct kvt_sealer *sealer;
};

static inline void sealing_start(struct sealing *s, const char *keys)
{
	char path[64];
	char *report = NULL;

	surroundings_start(&s->surroundings, &s->logged);
	s->sealer = NULL;
	write_keys(keys, 0600, path);
	ck_assert_msg(kvt_sealer_create(path, &s->surroundings, &s->sealer, &report) == KVT_OK,
		"%s", report);
	ck_assert_ptr_null(report);
	unlink(path);
}

static inline void sealing_end(struct sealing *s)
{
	kvt_sealer_destroy(s->sealer);
	s->sealer = NULL;
}

#endif
