/*
 * stamps.h - writes times into a stream of bytes and finds them at the receiver.
 *
 * A stamp is a key and twenty digits of nanoseconds; it is found wherever it lies in the stream,
 * however a proxy has cut and framed the bytes on the way.
 */
#ifndef KVB_STAMPS_H
#define KVB_STAMPS_H

#include <stddef.h>
#include <stdint.h>

#define KVB_STAMP_KEY "\"kvb_ns\":\""
#define KVB_STAMP_LEN (sizeof(KVB_STAMP_KEY) - 1 + 20)

/* Finds stamps in a stream of bytes; keeps the last bytes of a read, which may begin a stamp. */
struct kvb_stamp_reader {
	char tail[KVB_STAMP_LEN];
	size_t tail_len;
};

/* Calls found(arg, ns) for each stamp that these bytes complete. */
void kvb_stamps_read(struct kvb_stamp_reader *reader, const char *data, size_t len,
	void (*found)(void *arg, int64_t ns), void *arg);

#endif
