/*
 * image_none.c - used in builds without the CUDA Toolkit, which have no kernels: the copy engine
 * does all the work.
 */
#include <stddef.h>

#include "gpu/image.h"

const void *kvt_cuda_image(void)
{
	return NULL;
}
