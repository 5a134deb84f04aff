/*
 * sim_size.h - parses sizes on kvsim's command line.
 */
#ifndef KVB_SIM_SIZE_H
#define KVB_SIM_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* The text in kvsim's messages if a size is expected. */
#define KVB_SIZE_EXPECTED "a size such as 64GiB, 20GB or 1.5TB (10^9 bytes a GB, 2^30 a GiB)"

/* Parses "64GiB", "20GB", "20 GB", "1.5TB" or "4096": a decimal number of bytes, or of 10^3 to
 * 10^12 of them (KB, MB, GB, TB) or 2^10 to 2^40 (KiB, MiB, GiB, TiB), rounded to whole bytes.
 * Returns false if the text is none of these, rounds to 0, or is 2^63 or more; then *out is not
 * changed. */
bool kvb_parse_size(const char *text, uint64_t *out);

#endif
