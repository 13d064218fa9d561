"""ML-Decoder (Ridnik et al., WACV 2023; docs/methods.md 5): one fixed query, one embedding and one weight vector per class.

There is one query per class (Q = C), as all data sets here need. The decoder layer has no self-attention and is written out,
because torch's TransformerDecoder does not accept it since torch 2.1.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLDecoder(nn.Module):
    """Head from a feature map to logits and class-wise embeddings.

    Args:
        channels: D_in of the feature map.
        classes: C.
        dim: D of tokens and embeddings; ffn: width of the feed-forward layer; heads: attention heads.
    """

    queries: Tensor

    def __init__(
        self, channels: int, classes: int, *, dim: int = 768, ffn: int = 2048, heads: int = 8, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(channels, dim)
        # The queries are not trained, but saved with the model: a model does not work with another model's queries.
        self.register_buffer("queries", torch.randn(classes, dim))
        self.attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(dim, ffn), nn.Linear(ffn, dim)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.weight = nn.Parameter(torch.empty(classes, dim, 1))  # group fully-connected layer with groups of one class
        self.bias = nn.Parameter(torch.zeros(classes))
        # Xavier initialisation of the (C, D, 1) tensor as in the published code: fan_in = D, fan_out = C.
        nn.init.xavier_normal_(self.weight)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D_in, H, W) -> logits (B, C), embeddings z (B, C, D) (Equation (29))."""
        memory = F.relu(self.embed(features.flatten(2).transpose(1, 2)))  # (B, HW, D)
        query = self.queries.to(memory.dtype).expand(memory.shape[0], -1, -1)  # (B, C, D); len() would fix B in an export
        # A dropout of the query replaces the self-attention branch of a standard decoder layer.
        t = self.norm1(query + self.dropout(query))
        t = self.norm2(t + self.dropout(self.attention(t, memory, memory, need_weights=False)[0]))
        z = self.norm3(t + self.dropout(self.linear2(self.dropout(F.relu(self.linear1(t))))))  # (B, C, D)
        logits = torch.einsum("bcd,cd->bc", z, self.weight.squeeze(2).to(z.dtype)) + self.bias
        return logits, z
