/*
 * format.h - writes and parses numbers in the forms that people use.
 */
#ifndef KVT_FORMAT_H
#define KVT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#define KVT_FORMAT_BYTES 32

/* "28 KiB", "10.3 GiB". Returns out. */
const char *kvt_format_size(char out[KVT_FORMAT_BYTES], double bytes);

/* "3.53 GB/s". */
const char *kvt_format_rate(char out[KVT_FORMAT_BYTES], double bytes_per_second);

/* "412k", "1.3M": a count of tokens. */
const char *kvt_format_count(char out[KVT_FORMAT_BYTES], double count);

/* "12 s", "3 h 20 min". */
const char *kvt_format_age(char out[KVT_FORMAT_BYTES], double seconds);

/* Parses a decimal number greater than 0, perhaps followed by k, M, G, T or P (thousands). Returns
 * false if the text is no number. */
bool kvt_parse_number(const char *text, double *out);

/* Parses a number of bytes as people and vendors write them: "80GB" and "1.1T" by thousands,
 * "80GiB" by 1024. */
bool kvt_parse_bytes(const char *text, uint64_t *out);

/* Parses a size in the form that the configuration has. */
bool kvt_parse_size(const char *text, uint64_t *out);

#endif
