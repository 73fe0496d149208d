"""A tagger of the words in recipes: a bidirectional LSTM over packed lines of several lengths."""
# mypy: ignore-errors

import torch
from torch import nn
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, Dataset

RECIPES = """
two/AMOUNT cups/UNIT of/OTHER flour/FOOD
one/AMOUNT egg/FOOD
salt/FOOD
half/AMOUNT a/OTHER cup/UNIT of/OTHER warm/OTHER milk/FOOD
three/AMOUNT spoons/UNIT of/OTHER brown/OTHER sugar/FOOD
butter/FOOD and/OTHER jam/FOOD
two/AMOUNT ripe/OTHER plums/FOOD and/OTHER one/AMOUNT pear/FOOD
one/AMOUNT spoon/UNIT of/OTHER salt/FOOD
"""
PADDING = "-"


class Vocabulary:
    """Indices of names, the first of which is for padding."""

    def __init__(self, names):
        self.names = [PADDING, *sorted(set(names))]
        self.indices = dict(zip(self.names, range(len(self.names)), strict=True))

    def __len__(self):
        return len(self.names)

    def encode(self, names):
        return torch.tensor([self.indices[name] for name in names])


LINES = [[pair.split("/") for pair in line.split()] for line in RECIPES.strip().splitlines()]
WORDS = Vocabulary(word for line in LINES for word, _ in line)
TAGS = Vocabulary(tag for line in LINES for _, tag in line)


class Lines(Dataset):
    def __getitem__(self, index):
        words, tags = zip(*LINES[index], strict=True)
        return WORDS.encode(words), TAGS.encode(tags)

    def __len__(self):
        return len(LINES)


def collate_lines(lines):
    """Padded words and tags, a column for each line, and the lengths."""
    words, tags = zip(*lines, strict=True)
    return rnn.pad_sequence(words), rnn.pad_sequence(tags), torch.tensor(list(map(len, words)))


class RecipeTagger(nn.Module):
    def __init__(self, width=10, hidden_size=9):
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden_size, num_layers=2, bidirectional=True)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(2 * hidden_size, len(TAGS)), nn.LogSoftmax(dim=-1))
        self.initialise()

    @torch.no_grad()
    def initialise(self):
        """Orthogonal matrices, and biases that open the forget gates."""
        for weight in self.lstm.parameters():
            if weight.ndim > 1:
                for gate in weight.chunk(4):
                    nn.init.orthogonal_(gate)
            else:
                weight.zero_()
                weight.chunk(4)[1].add_(0.5)
        nn.init.xavier_normal_(self.classifier[1].weight)

    def forward(self, words, lengths):
        packed = rnn.pack_padded_sequence(self.embedding(words), lengths, enforce_sorted=False)
        outputs, (hidden, cell) = self.lstm(packed)
        outputs, new_lengths = rnn.pad_packed_sequence(outputs, total_length=len(words))
        if not torch.equal(new_lengths, lengths):
            raise AssertionError(f"lengths were {lengths}, are {new_lengths}")
        return self.classifier(outputs), hidden, cell


def build():
    return RecipeTagger()


def train(model):
    model.lstm.flatten_parameters()
    loss_of = nn.NLLLoss(ignore_index=0, reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.85, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 15, gamma=0.5)
    for epoch in range(40):
        losses = torch.zeros(())
        for words, tags, lengths in DataLoader(Lines(), batch_size=4, collate_fn=collate_lines):
            scores, _, _ = model(words, lengths)
            loss = loss_of(scores.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            (loss / lengths.sum()).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            optimizer.step()
            losses += loss.detach()
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}: rate {scheduler.get_last_lr()[0]:.3f}, loss {losses / sum(map(len, LINES)):.4f}")
        scheduler.step()
    model.eval()
    words, tags, lengths = collate_lines(list(Lines()))
    with torch.no_grad():
        scores, hidden, cell = model(words, lengths)
    predicted = scores.argmax(dim=-1).masked_fill(tags == 0, 0)
    for column, length in enumerate(lengths.tolist()):
        pairs = torch.stack([words, predicted], dim=-1)[:length, column].tolist()
        print(" ".join(f"{WORDS.names[word]}/{TAGS.names[tag]}" for word, tag in pairs))
    print(f"{(predicted == tags)[tags != 0].sum().item()} correct of {int(lengths.sum())}")
    print(f"states {tuple(hidden.shape)} and {tuple(cell.shape)}, norms {hidden.norm():.3f} and {cell.norm():.3f}")


if __name__ == "__main__":
    torch.manual_seed(17)
    train(build())
