/*
 * command.c - makes keys and checks files of keys, for `kvway key`.
 *
 * A key is 33 random bytes, so inverting its plain SHA-256 is as hard as guessing the key: unlike
 * passwords, it needs no slow hash. The key goes to standard error and the entry to standard
 * output, so that `kvway key new NAME >> FILE` stores the entry and shows the key, once.
 *
 * The file's own reader checks the entry before it is printed.
 */
#include "auth/command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "auth/keys_file.h"
#include "base/clock.h"

#define KEY_BYTES 33   /* 44 characters */
#define KEY_ROOM  64   /* "sk-kvway-", these, NUL */
#define SHOWN_MAX 4096 /* most bytes of a key on standard input */

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* The flags of `new`, with the member of an entry that each sets. */
static const struct {
	const char *flag, *member;
} flags[] = {{"--tenant", "tenant"}, {"--class", "class"}, {"--expires", "expires"}};

#define FLAG_COUNT (sizeof(flags) / sizeof(flags[0]))

static void print_usage(FILE *out)
{
	fputs("Usage:\n"
	      "  kvway key new NAME        "
	      "makes a key: shows it on standard error, once, and prints its entry\n"
	      "                            for the file that auth.keys_file names\n"
	      "  kvway key check FILE      looks that file over\n"
	      "  kvway key check FILE -    reads a key from standard input and says whose it is\n",
		out);
}

static void print_help(FILE *out)
{
	fputs("kvway key makes keys for clients, and looks over the file that holds their "
	      "hashes.\n\n",
		out);
	print_usage(out);
	fputs("\nExamples:\n"
	      "  echo 'keys:' > keys.yaml\n"
	      "  kvway key new alice --tenant research >> keys.yaml\n"
	      "  kvway key check keys.yaml\n"
	      "\n      --tenant NAME        of `new`: whose key it is\n"
	      "      --class CLASS        of `new`: its requests' priority class\n"
	      "      --expires DATE       of `new`: when it ends, such as 2027-01-31\n"
	      "  -h, --help               this text\n"
	      "\nconfig/REFERENCE.md explains what else an entry may have: models, paths, "
	      "trusted.\n"
	      "Exit status: 0 all is well, 1 mistakes in the file or a key that is not valid, 2 "
	      "wrong usage.\n",
		out);
}

static int fail_usage(FILE *err)
{
	print_usage(err);
	return STATUS_USAGE;
}

/* --- new --- */

static bool make_key(char out[KEY_ROOM])
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char bytes[KEY_BYTES];
	size_t len = 0;

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (const char *prefix = "sk-kvway-"; *prefix != '\0'; prefix++)
		out[len++] = *prefix;
	for (size_t i = 0; i < sizeof(bytes); i += 3) {
		unsigned bits =
			(unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];

		for (int shift = 18; shift >= 0; shift -= 6)
			out[len++] = digits[bits >> shift & 63];
	}
	out[len] = '\0';
	explicit_bzero(bytes, sizeof(bytes));
	return true;
}

static void write_entry(FILE *out, const char *name, const struct kvw_digest *digest,
	const char *const values[FLAG_COUNT])
{
	fprintf(out, "  - name: %s\n    sha256: ", name);
	for (size_t i = 0; i < sizeof(digest->bytes); i++)
		fprintf(out, "%02x", digest->bytes[i]);
	fputc('\n', out);
	for (size_t i = 0; i < FLAG_COUNT; i++)
		if (values[i] != NULL)
			fprintf(out, "    %s: %s\n", flags[i].member, values[i]);
}

/* Reads the words after `new`. Returns false if they are wrong, which was reported. */
static bool read_words(
	int argc, char **argv, FILE *err, const char **name, const char *values[FLAG_COUNT])
{
	for (int i = 2; i < argc; i++) {
		size_t flag = 0;

		while (flag < FLAG_COUNT && strcmp(argv[i], flags[flag].flag) != 0)
			flag++;
		if (flag < FLAG_COUNT && i + 1 < argc && values[flag] == NULL) {
			values[flag] = argv[++i];
		} else if (flag == FLAG_COUNT && argv[i][0] != '-' && *name == NULL) {
			*name = argv[i];
		} else {
			fprintf(err,
				"kvway key new: found `%s`, expected a name, or a flag once with "
				"its value\n",
				argv[i]);
			return false;
		}
	}
	if (*name == NULL)
		fputs("kvway key new: expected the key's name\n", err);
	return *name != NULL;
}

/* Returns whether a text is a single word that needs no quotes in YAML. */
static bool is_plain(const char *text)
{
	return text[0] != '\0' && text[0] != '-' &&
	       strspn(text,
		       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@:-") ==
		       strlen(text);
}

/* Reads an entry as the file's reader does; mistakes are written to err. */
static int check_entry(const char *entry, FILE *err)
{
	struct kvw_keyring *ring = NULL;
	char *text = NULL;
	enum kvw_err result = KVW_ENOMEM;

	if (asprintf(&text, "keys:\n%s", entry) >= 0) {
		result = kvw_keys_file_parse("kvway key new", text, strlen(text), err, &ring);
		free(text);
	}
	kvw_keyring_unref(ring);
	if (result == KVW_ENOMEM)
		fputs("kvway key: out of memory\n", err);
	return result == KVW_OK ? STATUS_OK : STATUS_FAILED;
}

static int make_client_key(int argc, char **argv, FILE *out, FILE *err)
{
	const char *name = NULL, *values[FLAG_COUNT] = {NULL};
	struct kvw_digest digest;
	char key[KEY_ROOM], *entry = NULL;
	size_t len = 0;
	int status = STATUS_FAILED;
	FILE *text;

	if (!read_words(argc, argv, err, &name, values))
		return fail_usage(err);
	for (size_t i = 0; i <= FLAG_COUNT; i++) {
		const char *word = i == FLAG_COUNT ? name : values[i];

		if (word == NULL || is_plain(word))
			continue;
		fprintf(err, "kvway key new: found `%s`, expected letters, digits or `._@:-`\n",
			word);
		return STATUS_USAGE;
	}
	if (!make_key(key)) {
		perror("kvway key: no random bytes");
		return STATUS_FAILED;
	}
	kvw_key_digest(kvw_slice_of(key), &digest);
	text = open_memstream(&entry, &len);
	if (text != NULL) {
		write_entry(text, name, &digest, values);
		fclose(text);
		status = check_entry(entry, err);
	} else {
		fputs("kvway key: out of memory\n", err);
	}
	if (status == STATUS_OK && (fputs(entry, out) < 0 || fflush(out) != 0)) {
		fputs("kvway key: the entry cannot be written; there is no key\n", err);
		status = STATUS_FAILED;
	}
	if (status == STATUS_OK)
		fprintf(err, "The key of %s, shown this once:\n%s\n", name, key);
	explicit_bzero(key, sizeof(key));
	free(entry);
	return status;
}

/* --- check --- */

static void print_key(FILE *out, const struct kvw_client_key *key)
{
	char until[32] = "never";
	time_t expires = (time_t)key->expires;
	struct tm tm;

	if (key->expires != 0 && gmtime_r(&expires, &tm) != NULL)
		(void)strftime(until, sizeof(until), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(out, "name: %s\ntenant: %s\nclass: %s\nexpires: %s\n", key->name,
		key->tenant != NULL ? key->tenant : "", key->class != NULL ? key->class : "",
		until);
}

/* Finds the entry for the key on standard input. */
static int check_key(const struct kvw_keyring *ring, FILE *in, FILE *out, FILE *err)
{
	const struct kvw_client_key *key;
	struct kvw_digest digest;
	char shown[SHOWN_MAX];
	size_t len;

	/* unbuffered, so that no other copy of the key stays in memory */
	(void)setvbuf(in, NULL, _IONBF, 0);
	len = fread(shown, 1, sizeof(shown), in);
	while (len > 0 && (shown[len - 1] == '\n' || shown[len - 1] == '\r'))
		len--;
	kvw_key_digest((struct kvw_slice){shown, len}, &digest);
	explicit_bzero(shown, sizeof(shown));
	key = len == 0 ? NULL : kvw_keyring_find(ring, &digest);
	if (key == NULL) {
		fputs("kvway key check: the file does not have this key\n", err);
		return STATUS_FAILED;
	}
	print_key(out, key);
	if (kvw_client_key_lives(key, kvw_clock_wall_ns() / KVW_NS_PER_S))
		return STATUS_OK;
	fputs("kvway key check: this key has expired\n", err);
	return STATUS_FAILED;
}

static int check(int argc, char **argv, FILE *in, FILE *out, FILE *err)
{
	bool with_key = argc == 4 && strcmp(argv[3], "-") == 0;
	struct kvw_keyring *ring = NULL;
	enum kvw_err result;
	int status = STATUS_OK;

	if ((argc != 3 && !with_key) || argv[2][0] == '-')
		return fail_usage(err);
	result = kvw_keys_file_load(argv[2], err, &ring);
	if (result == KVW_ENOMEM)
		fputs("kvway key: out of memory\n", err);
	if (result != KVW_OK)
		return STATUS_FAILED;
	if (with_key)
		status = check_key(ring, in, out, err);
	else
		fprintf(out, "%s: ok, %zu key%s\n", argv[2], kvw_keyring_count(ring),
			kvw_keyring_count(ring) == 1 ? "" : "s");
	kvw_keyring_unref(ring);
	return status;
}

int kvw_key_command(int argc, char **argv, FILE *in, FILE *out, FILE *err)
{
	const char *verb = argc > 1 ? argv[1] : "";

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(out);
			return STATUS_OK;
		}
	if (strcmp(verb, "new") == 0)
		return make_client_key(argc, argv, out, err);
	if (strcmp(verb, "check") == 0)
		return check(argc, argv, in, out, err);
	if (verb[0] != '\0')
		fprintf(err, "kvway key: found `%s`, expected `new` or `check`\n", verb);
	return fail_usage(err);
}
