/*
 * image.h - the compiled kernels: binaries for several devices (cubins) and PTX for others, in one
 * piece of memory.
 */
#ifndef KVT_CUDA_IMAGE_H
#define KVT_CUDA_IMAGE_H

#define KVT_CUDA_KERNEL      "kvt_gpu_move"
#define KVT_CUDA_TURN_KERNEL "kvt_gpu_turn"

/* Returns the image; NULL: this build has none. Static. */
const void *kvt_cuda_image(void);

#endif
