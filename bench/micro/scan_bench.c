/*
 * scan_bench.c - how fast the scan reads a request body, compared with a JSON library.
 *
 * Four kinds of prompt, each in a chat or completions body of 32 and 256 KB, made from a fixed seed:
 *
 *	text       English-like prose: paragraphs, now and then a quotation mark
 *	code       C-like source: a line end, tab or quotation mark every twenty bytes or so
 *	cjk        text in which every character is \uXXXX, as Python's json.dumps writes it
 *	token_ids  a list of integers up to 128,000
 *
 * Ours is fed in pieces of 16 KB, as a socket gives them, and includes reset and the fold of the
 * chain; the peer is json_loadb() and json_decref() of the whole body, that is without any hashing.
 * Rounds alternate between the two; each figure is the median of the rounds.
 *
 * JSON lines on standard output, a table on standard error. Arguments: --rounds N, --quick.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "openai/scan.h"
#include "bench/timing.h"

#define PIECE      ((size_t)16 << 10)
#define MAX_ROUNDS 99

struct body {
	const char *name;
	enum kvw_api api;
	char *data; /* owned */
	size_t len, size;
	uint64_t random;
};

static uint32_t next_random(struct body *body, uint32_t below)
{
	body->random = body->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((body->random >> 33) % below);
}

static void add(struct body *body, const char *text)
{
	size_t len = strlen(text);

	memcpy(body->data + body->len, text, len);
	body->len += len;
}

/* Adds a word of two to eleven letters that looks English. */
static void add_word(struct body *body)
{
	static const char *const starts[] = {"b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r",
		"s", "t", "th", "st", "pr", "w", "", "tr", "sh"};
	static const char *const cores[] = {"a", "e", "i", "o", "u", "ea", "ou", "ai", "e", "a"};
	static const char *const ends[] = {"n", "t", "r", "s", "l", "d", "ng", "", "nd", "ce"};
	uint32_t syllables = 1 + next_random(body, 3);

	for (uint32_t i = 0; i < syllables; i++) {
		add(body, starts[next_random(body, 20)]);
		add(body, cores[next_random(body, 10)]);
	}
	add(body, ends[next_random(body, 10)]);
}

static void add_text(struct body *body, size_t size)
{
	while (body->len < size) {
		uint32_t sentences = 4 + next_random(body, 5);

		for (uint32_t s = 0; s < sentences; s++) {
			uint32_t words = 6 + next_random(body, 16);
			bool quoted = next_random(body, 12) == 0;

			add(body, quoted ? "\\\"" : "");
			for (uint32_t w = 0; w < words; w++) {
				add_word(body);
				add(body, w + 1 == words          ? "."
					  : next_random(body, 12) ? " "
								  : ", ");
			}
			add(body, quoted ? "\\\" " : " ");
		}
		add(body, "\\n\\n");
	}
}

static void add_code(struct body *body, size_t size)
{
	while (body->len < size) {
		switch (next_random(body, 5)) {
		case 0:
			add(body, "\\tif (");
			add_word(body);
			add(body, " != NULL)\\n\\t\\treturn ");
			add_word(body);
			break;
		case 1:
			add(body, "\\tprintf(\\\"%s ");
			add_word(body);
			add(body, "\\\\n\\\", ");
			add_word(body);
			add(body, ")");
			break;
		case 2:
			add(body, "\\t");
			add_word(body);
			add(body, "->");
			add_word(body);
			add(body, " = ");
			add_word(body);
			break;
		case 3:
			add(body, "#include \\\"");
			add_word(body);
			add(body, ".h\\\"\\n");
			continue;
		default:
			add(body, "\\tfor (i = 0; i < ");
			add_word(body);
			add(body, "; i++) {\\n\\t\\t");
			add_word(body);
			add(body, "[i] = 0;\\n\\t}\\n");
			continue;
		}
		add(body, ";\\n");
	}
}

static void add_cjk(struct body *body, size_t size)
{
	while (body->len < size) {
		uint32_t sentence = 8 + next_random(body, 40);

		for (uint32_t i = 0; i < sentence; i++) {
			body->len += (size_t)sprintf(body->data + body->len, "\\u%04x",
				0x4e00 + next_random(body, 20000));
		}
		add(body, next_random(body, 4) == 0 ? "\\u3002\\n" : "\\uff0c");
	}
}

static void add_ids(struct body *body, size_t size)
{
	while (body->len < size) {
		/* Frequent tokens have small numbers. */
		uint32_t below = next_random(body, 3) == 0 ? 128000 : 20000;

		body->len +=
			(size_t)sprintf(body->data + body->len, "%u, ", next_random(body, below));
	}
	body->len -= 2;
}

static void make(struct body *body, const char *name, size_t size)
{
	memset(body, 0, sizeof(*body));
	body->name = name;
	body->random = 20260101;
	body->data = malloc(size + 4096);
	if (body->data == NULL)
		abort();
	if (strcmp(name, "token_ids") == 0) {
		body->api = KVW_API_COMPLETIONS;
		add(body, "{\"model\": \"m\", \"stream\": true, \"prompt\": [");
		add_ids(body, size);
		add(body, "]}");
		return;
	}
	body->api = KVW_API_CHAT;
	add(body, "{\"model\": \"m\", \"stream\": true, \"messages\": [{\"role\": \"system\", "
		  "\"content\": \"You are helpful.\"}, {\"role\": \"user\", \"content\": \"");
	if (strcmp(name, "text") == 0)
		add_text(body, size);
	else if (strcmp(name, "code") == 0)
		add_code(body, size);
	else
		add_cjk(body, size);
	add(body, "\"}]}");
}

static void scan_once(struct kvw_scan *scan, const struct body *body)
{
	struct kvw_route_request out;

	kvw_scan_reset(scan, body->api);
	for (size_t at = 0; at < body->len; at += PIECE) {
		size_t len = body->len - at < PIECE ? body->len - at : PIECE;

		kvw_scan_feed(scan, body->data + at, len);
	}
	if (kvw_scan_finish(scan, &out) != KVW_OK || out.chunk_count < 16) {
		fprintf(stderr, "scan_bench: %s was not understood\n", body->name);
		exit(1);
	}
}

static void parse_once(const struct body *body)
{
	json_t *json = json_loadb(body->data, body->len, 0, NULL);

	if (json == NULL)
		exit(1);
	json_decref(json);
}

static void measure(struct kvw_scan *scan, const char *name, size_t size, int rounds, int repeat)
{
	double ours[MAX_ROUNDS], peers[MAX_ROUNDS], our_rate, peer_rate;
	struct body body;

	make(&body, name, size);
	for (int round = -1; round < rounds; round++) { /* the first pass is not counted */
		double start = kvb_seconds(), middle;

		for (int i = 0; i < repeat * 20; i++)
			scan_once(scan, &body);
		middle = kvb_seconds();
		for (int i = 0; i < repeat; i++)
			parse_once(&body);
		if (round < 0)
			continue;
		ours[round] = (double)body.len * repeat * 20 / (middle - start);
		peers[round] = (double)body.len * repeat / (kvb_seconds() - middle);
	}
	our_rate = kvb_median(ours, (size_t)rounds);
	peer_rate = kvb_median(peers, (size_t)rounds);
	printf("{\"bench\":\"scan\",\"metric\":\"bytes_per_second\",\"body\":\"%s\",\"body_kb\":%"
	       "zu,"
	       "\"value\":%.0f,\"unit\":\"B/s\",\"peer\":\"jansson\",\"ratio\":%.2f}\n",
		name, size >> 10, our_rate, our_rate / peer_rate);
	fprintf(stderr, "%-10s %4zu KB  %8.0f MB/s  %8.2f us  jansson %6.0f MB/s  %6.1fx\n", name,
		size >> 10, our_rate / 1e6, (double)body.len / our_rate * 1e6, peer_rate / 1e6,
		our_rate / peer_rate);
	free(body.data);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"text", "code", "cjk", "token_ids"};
	struct kvw_scan *scan;
	int rounds = 9, repeat = 16;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--quick") == 0) {
			rounds = 5;
			repeat = 1;
		} else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
			rounds = atoi(argv[++i]);
		} else {
			fprintf(stderr, "usage: scan_bench [--quick] [--rounds N]\n");
			return 2;
		}
	}
	if (rounds < 1 || rounds > MAX_ROUNDS || kvw_scan_create(NULL, &scan) != KVW_OK)
		return 2;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		measure(scan, names[i], (size_t)32 << 10, rounds, repeat * 8);
		measure(scan, names[i], (size_t)256 << 10, rounds, repeat);
	}
	kvw_scan_destroy(scan);
	return 0;
}
