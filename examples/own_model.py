"""Train a torch module of your own, here a small ResNet. GroupNorm: the statistics of BatchNorm are not private."""

import os

import torch
from torch import Tensor, nn

import sottovoce as sv

ROUNDS = int(os.environ.get("ROUNDS", "30"))


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm_one, self.norm_two = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm_one(self.one(x)))
        return torch.relu(x + self.norm_two(self.two(inner)))


resnet = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), Block(16), nn.MaxPool2d(2), Block(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    nn.Linear(64, 10),
)  # fmt: skip

result = sv.simulate(
    "digits", resnet, clients=50, rounds=ROUNDS, sample_rate=0.2, evaluate_every=5,
    callbacks=[lambda record: "accuracy" in record and print(record["round"], record["accuracy"])],
)  # fmt: skip

print(result)
torch.save(result.model.state_dict(), "resnet.pt")
