/*
 * memo.h - the results of calibrations, kept in a file of the user.
 *
 * Each is a line "kvtier-gpu 1 KEY DIGITS". KEY has no blanks, and has everything on which a
 * calibration depends; DIGITS are the chosen methods, for gathers of each class of size and then
 * for scatters. The file is small and bounded; a rewrite drops all other lines. A memo that cannot
 * be read or written only costs a calibration at the next start.
 */
#ifndef KVT_GPU_MEMO_H
#define KVT_GPU_MEMO_H

#include <stdbool.h>
#include <stddef.h>

#define KVT_GPU_MEMO_BYTES  ((size_t)64 * 1024)
#define KVT_GPU_MEMO_DIGITS 6

/* Finds the line of a key in the text of a memo; its digits are '1' to '3'. If a key has several
 * lines, the last one counts. */
bool kvt_gpu_memo_find(const char *text, size_t len, const char *key,
	char digits[KVT_GPU_MEMO_DIGITS]);

/* Writes the text with this line in place of the key's old one. Drops the oldest lines if the text
 * would be too long. out has room for KVT_GPU_MEMO_BYTES. Returns the length. */
size_t kvt_gpu_memo_update(const char *text, size_t len, const char *key,
	const char digits[KVT_GPU_MEMO_DIGITS], char *out);

/* Like find and update, but on a file. path NULL: kvtier/gpu in XDG_CACHE_HOME or HOME/.cache; "":
 * there is no file. The file is replaced as a whole, so that several processes do not harm each
 * other. */
bool kvt_gpu_memo_load(const char *path, const char *key, char digits[KVT_GPU_MEMO_DIGITS]);
bool kvt_gpu_memo_save(const char *path, const char *key, const char digits[KVT_GPU_MEMO_DIGITS]);

#endif
