/*
 * lmcache_detect.c - tries all recipes that are in use, one after the other.
 *
 * A guess is a number that encodes one choice per property. Guesses that differ only in choices
 * without effect (the SipHash variant if the hash is a digest, the fold if it is builtin) mean the
 * same recipe; only the first of them is tried.
 */
#include "wire/lmcache_detect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	ALGORITHMS = 5,
	SIPHASHES = 2,
	EXTRAS = 2,
	FOLDS = 2,
	ROOTS = 4,
	SIZES = 9,
	GUESSES = ALGORITHMS * SIPHASHES * EXTRAS * FOLDS * ROOTS * SIZES,
};

/* Takes the next choice, one of `base`, out of the number; 0 is the configured value. */
static unsigned choose_seed(size_t *number, unsigned base, unsigned configured)
{
	unsigned digit = (unsigned)(*number % base);

	*number /= base;
	return (configured + digit) % base;
}

static void choose_root(struct kvw_lmcache_recipe *guess, unsigned choice)
{
	if (choice == 0) /* as configured */
		return;
	guess->root = KVW_LMCACHE_ROOT_SEED;
	guess->seed = NULL;
	guess->none_hash = 0;
	if (choice == 2)
		guess->seed = "0";
	if (choice == 3)
		guess->root = KVW_LMCACHE_ROOT_NUMBER;
}

/* Makes the recipe of a guess. Returns false if a guess with a smaller number means the same
 * recipe. */
static bool guess_of(const struct kvw_lmcache_recipe *configured, size_t number,
	struct kvw_lmcache_recipe *guess)
{
	unsigned size, root;

	*guess = *configured;
	guess->algorithm = choose_seed(&number, ALGORITHMS, configured->algorithm);
	guess->extra = choose_seed(&number, EXTRAS, configured->extra);
	root = choose_seed(&number, ROOTS, 0);
	choose_root(guess, root);
	guess->siphash = choose_seed(&number, SIPHASHES, configured->siphash);
	guess->fold = choose_seed(&number, FOLDS, configured->fold);
	size = choose_seed(&number, SIZES, 0);
	if (size > 0)
		guess->chunk_size = 8u << size;
	if (size > 0 && guess->chunk_size == configured->chunk_size)
		return false;
	if (guess->algorithm == KVW_LMCACHE_BUILTIN)
		return guess->fold == configured->fold;
	return guess->siphash == configured->siphash;
}

/* Values of PYTHONHASHSEED that are often used, in addition to 0. */
static const char *const usual_seeds[] = {"1", "2", "3", "5", "7", "8", "10", "12", "13", "16",
	"17", "21", "32", "42", "64", "99", "100", "101", "111", "123", "128", "256", "314", "420",
	"512", "666", "777", "888", "999", "1000", "1024", "1111", "1234", "1337", "2024", "2025",
	"2026", "2048", "3407", "4096", "4242", "9999", "10000", "12345", "31337", "65535", "65536",
	"123456", "314159", "1234567", "12345678", "123456789", "4294967295"};

/* Computes keys by one recipe. KVW_ENOTFOUND: the worker does not have the key that this recipe
 * gives for the prompt's first chunk. */
static enum kvw_err try_recipe(const struct kvw_lmcache_recipe *guess, const uint32_t *tokens,
	size_t count, kvw_lmcache_known_fn *known, void *context)
{
	uint64_t state, key;
	size_t keys = 0;
	enum kvw_err err = kvw_lmcache_begin(guess, &state);

	if (err == KVW_OK)
		err = kvw_lmcache_hash(guess, &state, tokens, count, &key, 1, &keys);
	if (err == KVW_OK && (keys != 1 || !known(context, key)))
		err = KVW_ENOTFOUND;
	return err;
}

enum kvw_err kvw_lmcache_detect(const struct kvw_lmcache_recipe *configured, const uint32_t *tokens,
	size_t count, kvw_lmcache_known_fn *known, void *context, struct kvw_lmcache_recipe *found)
{
	const size_t seeds = sizeof(usual_seeds) / sizeof(usual_seeds[0]);
	enum kvw_err err = KVW_ENOTFOUND;

	for (size_t i = 0; i < GUESSES + seeds && err == KVW_ENOTFOUND; i++) {
		struct kvw_lmcache_recipe guess = *configured;

		if (i >= GUESSES) {
			guess.root = KVW_LMCACHE_ROOT_SEED;
			guess.seed = usual_seeds[i - GUESSES];
		} else if (!guess_of(configured, i, &guess)) {
			continue;
		}
		if (kvw_lmcache_recipe_fault(&guess) != NULL)
			continue;
		err = try_recipe(&guess, tokens, count, known, context);
		if (err == KVW_OK)
			*found = guess;
	}
	return err;
}

/* A text in a buffer of fixed size, to which is appended. */
struct note {
	char *text;
	size_t size, length;
};

static void __attribute__((format(printf, 2, 3)))
note_add(struct note *note, const char *format, ...)
{
	va_list arguments;
	int written;

	if (note->length > 0 && note->length + 2 < note->size) {
		memcpy(note->text + note->length, ", ", 3);
		note->length += 2;
	}
	va_start(arguments, format);
	written =
		vsnprintf(note->text + note->length, note->size - note->length, format, arguments);
	va_end(arguments);
	if (written > 0)
		note->length += (size_t)written;
	if (note->length >= note->size)
		note->length = note->size - 1;
}

static void root_text(const struct kvw_lmcache_recipe *recipe, char text[48])
{
	if (recipe->root == KVW_LMCACHE_ROOT_NUMBER)
		(void)snprintf(text, 48, "NONE_HASH %" PRIi64, (int64_t)recipe->none_hash);
	else if (recipe->seed == NULL)
		(void)snprintf(text, 48, "PYTHONHASHSEED not set");
	else
		(void)snprintf(text, 48, "PYTHONHASHSEED %.24s", recipe->seed);
}

size_t kvw_lmcache_difference(const struct kvw_lmcache_recipe *configured,
	const struct kvw_lmcache_recipe *found, char *text, size_t size)
{
	static const char *const siphashes[] = {
		"1-3 (CPython 3.11 and later)", "2-4 (before 3.11)"};
	static const char *const extras[] = {"()", "None"}, *const folds[] = {"first", "last"};
	struct note note = {.text = text, .size = size};
	char here[48], there[48];

	text[0] = '\0';
	if (configured->algorithm != found->algorithm)
		note_add(&note, "hash algorithm %s (configured: %s)",
			kvw_lmcache_algorithm_name(found->algorithm),
			kvw_lmcache_algorithm_name(configured->algorithm));
	root_text(configured, here);
	root_text(found, there);
	if (strcmp(here, there) != 0)
		note_add(&note, "%s (configured: %s)", there, here);
	if (configured->siphash != found->siphash)
		note_add(&note, "SipHash %s (configured: %s)", siphashes[found->siphash],
			siphashes[configured->siphash]);
	if (configured->extra != found->extra)
		note_add(&note, "extra %s (configured: %s)", extras[found->extra],
			extras[configured->extra]);
	if (configured->fold != found->fold)
		note_add(&note, "%s 8 bytes of the digest (configured: %s)", folds[found->fold],
			folds[configured->fold]);
	if (configured->chunk_size != found->chunk_size)
		note_add(&note, "chunk size %" PRIu32 " (configured: %" PRIu32 ")",
			found->chunk_size, configured->chunk_size);
	return note.length;
}
