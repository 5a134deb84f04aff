/*
 * agree.h - what must hold for every head and body, wherever the bytes come from.
 *
 * Each function aborts with a line on stderr when something does not hold, and otherwise says
 * whether the bytes were accepted. Used by the fuzz targets, and by a unit test with bytes from a
 * fixed seed.
 */
#ifndef KVW_FUZZ_AGREE_H
#define KVW_FUZZ_AGREE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Takes the bytes as a stream that begins with a head. The end of the head is found at the same
 * place however the stream is cut. A head that our check accepts: llhttp finds the same start line,
 * fields and framing; written on, it fits its bound, is accepted again, carries the framing that
 * was asked for, and has lost no end-to-end field and kept none of one connection.
 */
bool kvb_agree_head(const char *data, size_t len, bool response);

/*
 * Takes the bytes as a chunked body and what follows. The result is the same however they are cut.
 * Where our reader accepts what it got so far, llhttp does, with the same payload; where ours ends,
 * llhttp ends at the same byte.
 */
bool kvb_agree_body(const char *data, size_t len);

#endif
