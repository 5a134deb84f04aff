/*
 * little_endian.h - reads and writes numbers as bytes, the lowest first.
 */
#ifndef KVT_LITTLE_ENDIAN_H
#define KVT_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void kvt_put16(uint8_t *to, uint16_t value)
{
	to[0] = (uint8_t)value;
	to[1] = (uint8_t)(value >> 8);
}

static inline void kvt_put32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

static inline void kvt_put64(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint16_t kvt_get16(const uint8_t *from)
{
	return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t kvt_get32(const uint8_t *from)
{
	uint32_t value = 0;

	for (int i = 3; i >= 0; i--)
		value = value << 8 | from[i];
	return value;
}

static inline uint64_t kvt_get64(const uint8_t *from)
{
	return kvt_get32(from) | (uint64_t)kvt_get32(from + 4) << 32;
}

#endif
