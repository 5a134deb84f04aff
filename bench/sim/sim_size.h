/*
 * sim_size.h - sizes on kvsim's command line.
 */
#ifndef KVB_SIM_SIZE_H
#define KVB_SIM_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* What kvsim's messages say where a size is expected. */
#define KVB_SIZE_EXPECTED "a size such as 64GiB, 20GB or 1.5TB (10^9 bytes a GB, 2^30 a GiB)"

/* "64GiB", "20GB", "20 GB", "1.5TB", "4096": a decimal number of bytes, or of 10^3 to 10^12 of them (KB,
 * MB, GB, TB) or 2^10 to 2^40 (KiB, MiB, GiB, TiB), rounded to whole bytes. False if the text is none
 * of these, rounds to none or reaches 2^63; *out is then untouched. */
bool kvb_parse_size(const char *text, uint64_t *out);

#endif
