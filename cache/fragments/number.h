/*
 * number.h - converts bfloat16 and half precision to float and back, for the processor and for a device.
 *
 * The conversion works on bits alone, so that both get the same value: rounded to nearest, ties to even; NaN stays NaN.
 */
#ifndef KVT_FRAGMENTS_NUMBER_H
#define KVT_FRAGMENTS_NUMBER_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define KVT_NUMBER static __host__ __device__ __forceinline__
#else
#define KVT_NUMBER static inline __attribute__((always_inline))
#endif

KVT_NUMBER float kvt_float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

KVT_NUMBER uint32_t kvt_bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

KVT_NUMBER float kvt_bf16_to_float(uint16_t value)
{
	return kvt_float_of((uint32_t)value << 16);
}

KVT_NUMBER uint16_t kvt_float_to_bf16(float value)
{
	uint32_t bits = kvt_bits_of(value), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}

KVT_NUMBER float kvt_half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, part = half & 0x3ff;

	if (exponent == 0) /* a whole number of 2^-24 */
		return kvt_float_of(kvt_bits_of((float)part * 5.9604644775390625e-8F) | sign);
	if (exponent == 31)
		return kvt_float_of(sign | 0x7f800000 | part << 13 | (part != 0 ? 0x400000 : 0));
	return kvt_float_of(sign | (exponent + 112) << 23 | part << 13);
}

KVT_NUMBER uint16_t kvt_float_to_half(float value)
{
	uint32_t bits = kvt_bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;

	if (size > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
	if (size >= 0x477ff000) /* 65520 and more: infinite */
		return (uint16_t)(sign | 0x7c00);
	if (size < 0x38800000) { /* below 2^-14: adding 1/2 leaves the rounded multiple of 2^-24 in the last bits */
		uint32_t sum = kvt_bits_of(kvt_float_of(size) + 0.5F);

		return (uint16_t)(sign | (sum - 0x3f000000));
	}
	size += 0xfff + (size >> 13 & 1);
	return (uint16_t)(sign | ((size - (112U << 23)) >> 13));
}

#endif
