/*
 * image_fake.c - the fake driver takes anything for a kernel.
 */
#include "gpu/image.h"

const void *kvt_cuda_image(void)
{
	return "kernel";
}
