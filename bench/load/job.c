/* job.c - the words of a job line; see job.h. */
#include "bench/load/job.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct kvb_job defaults = {
	.host = "127.0.0.1",
	.port = 8080,
	.body = 2048,
	.connections = 64,
	.streams = 400,
	.interval_us = 20000,
	.warmup_ms = 500,
	.duration_ms = 2000,
};

static const struct key {
	const char *name;
	size_t offset; /* offset of an int64_t in struct kvb_job */
	int64_t min, max;
	const char *text;
} keys[] = {
	{"port", offsetof(struct kvb_job, port), 1, 65535, "of the proxy"},
	{"pid", offsetof(struct kvb_job, pid), 0, INT32_MAX,
		"process whose CPU or memory is read; 0: none"},
	{"body", offsetof(struct kvb_job, body), 512, 1 << 26, "bytes of a request body"},
	{"connections", offsetof(struct kvb_job, connections), 1, 1000000,
		"clients at once (idle: clients counted)"},
	{"streams", offsetof(struct kvb_job, streams), 1, 100000, "event streams at once"},
	{"interval_us", offsetof(struct kvb_job, interval_us), 100, 10000000,
		"between two events of one stream"},
	{"warmup_ms", offsetof(struct kvb_job, warmup_ms), 0, 600000, "not counted"},
	{"duration_ms", offsetof(struct kvb_job, duration_ms), 10, 3600000, "counted"},
	{"rate", offsetof(struct kvb_job, rate), 0, 10000000,
		"requests per second; 0: as fast as answers come"},
	{"tls", offsetof(struct kvb_job, tls), 0, 1, "requests: 1: by TLS 1.3"},
	{"unique", offsetof(struct kvb_job, unique), 0, 1, "requests: 1: no two bodies share a prefix"},
	{"resume", offsetof(struct kvb_job, resume), 0, 1, "handshakes: 1: all of one session"},
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

static int64_t *field(struct kvb_job *job, const struct key *key)
{
	return (int64_t *)((char *)job + key->offset);
}

void kvb_job_print_keys(FILE *out)
{
	struct kvb_job job = defaults;

	fprintf(out, "  %-12s address of the proxy (default %s)\n", "host", defaults.host);
	for (size_t i = 0; i < KEY_COUNT; i++)
		fprintf(out, "  %-12s %s (default %lld)\n", keys[i].name, keys[i].text,
			(long long)*field(&job, &keys[i]));
}

static enum kvw_err parse_pair(char *word, struct kvb_job *job, FILE *error)
{
	char *value = strchr(word, '='), *end;
	long long number;

	if (value == NULL)
		goto unknown;
	*value++ = '\0';
	if (strcmp(word, "host") == 0 && strlen(value) < sizeof(job->host)) {
		strcpy(job->host, value);
		return KVW_OK;
	}
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (strcmp(word, keys[i].name) != 0)
			continue;
		errno = 0;
		number = strtoll(value, &end, 10);
		if (errno || *end || end == value || number < keys[i].min || number > keys[i].max) {
			fprintf(error, "job: %s is '%s', expected a number from %lld to %lld\n",
				word, value, (long long)keys[i].min, (long long)keys[i].max);
			return KVW_EINVAL;
		}
		*field(job, &keys[i]) = number;
		return KVW_OK;
	}
unknown:
	fprintf(error, "job: '%s' is not a key=value that this program knows\n", word);
	return KVW_EINVAL;
}

enum kvw_err kvb_job_parse(char *line, struct kvb_job *out, FILE *error)
{
	static const char *const kinds[] = {"requests", "stream", "idle", "handshakes"};
	struct kvb_job job = defaults;
	char *state = NULL, *word = strtok_r(line, " \t\r\n", &state);
	size_t kind = 0;

	while (kind < 4 && (word == NULL || strcmp(word, kinds[kind]) != 0))
		kind++;
	if (kind == 4) {
		fprintf(error, "job: '%s', expected requests, stream, idle or handshakes\n", word ? word : "");
		return KVW_EINVAL;
	}
	job.kind = (enum kvb_job_kind)kind;
	while ((word = strtok_r(NULL, " \t\r\n", &state)) != NULL) {
		enum kvw_err err = parse_pair(word, &job, error);

		if (err != KVW_OK)
			return err;
	}
	*out = job;
	return KVW_OK;
}
