/*
 * image_none.c - a build without the CUDA Toolkit has no kernel; the copy engine does all the work.
 */
#include <stddef.h>

#include "gpu/image.h"

const void *kvt_cuda_image(void)
{
	return NULL;
}
