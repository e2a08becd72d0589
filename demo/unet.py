"""The U-Net of Stable Diffusion 1.5 by diffusers, with the function that dpx.record asks for: docs/howto/own-model.md."""
import torch
import torch.nn.functional as F
from diffusers import UNet2DConditionModel


def make():
    """Latents of 64 by 64 are pictures of 512 by 512; 77 tokens of text."""
    unet = UNet2DConditionModel(sample_size=64, block_out_channels=(320, 640, 1280, 1280), cross_attention_dim=768, attention_head_dim=8)
    inputs = lambda b, s: (torch.zeros((b, 4, s, s)), torch.zeros((b,), dtype=torch.long), torch.zeros((b, 77, 768)), torch.zeros((b, 4, s, s)))
    return unet, inputs, lambda m, x: F.mse_loss(m(x[0], x[1], encoder_hidden_states=x[2]).sample, x[3])
